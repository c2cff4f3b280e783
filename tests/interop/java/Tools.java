import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import org.apache.kafka.common.utils.Exit;

/** Runs one tool of Apache Kafka after another in one JVM: a line with the class and its arguments, parted by tabs, is answered with the
 * exit code, what the tool printed, and a line with the end mark. */
public class Tools {
    private static final String END = "\u0004";

    private static class Ended extends Error {
        Ended(int code) {
            super("exit " + code);
        }
    }

    private static Integer first;

    public static void main(String[] ignored) throws Exception {
        PrintStream answers = System.out;
        Exit.setExitProcedure((code, message) -> {
            if (first == null) { // a tool may catch what follows, and exit again
                first = code;
            }
            throw new Ended(code);
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            ByteArrayOutputStream printed = new ByteArrayOutputStream();
            PrintStream stream = new PrintStream(printed, true);
            System.setOut(stream);
            System.setErr(stream);
            first = null;
            try {
                Class<?> tool = Class.forName(words[0]);
                tool.getMethod("main", String[].class).invoke(null, (Object) Arrays.copyOfRange(words, 1, words.length));
            } catch (InvocationTargetException problem) {
                if (!(problem.getCause() instanceof Ended)) {
                    throw problem;
                }
            }
            answers.println(first == null ? 0 : first);
            answers.println(printed);
            answers.println(END);
            answers.flush();
        }
    }
}
