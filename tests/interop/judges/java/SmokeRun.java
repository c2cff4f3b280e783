// Kafka Streams' own smoke test, with less to do than its main class has: `SmokeRun BOOTSTRAP KEYS RECORDS_OF_EACH SECONDS`
// writes the input, as slowly as it is told, and verifies what an application that runs meanwhile has made of it.

import java.time.Duration;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.streams.tests.SmokeTestDriver;

public class SmokeRun {
    public static void main(String[] told) {
        int keys = Integer.parseInt(told[1]);
        int each = Integer.parseInt(told[2]);
        Duration time = Duration.ofSeconds(Integer.parseInt(told[3]));
        Map<String, Set<Integer>> data = SmokeTestDriver.generate(told[0], keys, each, time);
        SmokeTestDriver.verify(told[0], data, each, true);
    }
}
