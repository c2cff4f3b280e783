// Reads records with Kafka Connect's own JsonConverter and writes them again.
//
// In, a line for each: settings as JSON, a blank, the record's bytes in base64. Out, a line for each: the bytes that the converter makes of
// what it read, in base64; or "!" and the error's text.

import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.errors.DataException;
import org.apache.kafka.connect.json.JsonConverter;

public final class ConverterOracle {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ObjectMapper json = new ObjectMapper();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            int blank = line.lastIndexOf(' ');
            Map<String, String> settings = json.readValue(line.substring(0, blank), new TypeReference<Map<String, String>>() { });
            JsonConverter converter = new JsonConverter();
            converter.configure(settings, false);
            try {
                SchemaAndValue read = converter.toConnectData("topic", Base64.getDecoder().decode(line.substring(blank + 1)));
                byte[] made = converter.fromConnectData("topic", read.schema(), read.value());
                out.println(made == null ? "" : Base64.getEncoder().encodeToString(made));
            } catch (DataException problem) {
                out.println("!" + problem.getMessage().replace('\n', ' '));
            }
        }
    }
}
