import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;

/**
 * The service of `benchmarks.exactly_once` in Kafka Streams: bootstrap, group, topic, topic of results, guarantee, records, folder.
 *
 * <p>Prints the seconds, and those of processor time, from its first record until it has stopped with all of them committed.
 */
public final class StreamsService {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private static long left;
    private static long began;
    private static long cpuBegan;
    private static final CountDownLatch DONE = new CountDownLatch(1);

    private static String price(String ride) {
        if (began == 0) {
            cpuBegan = SYSTEM.getProcessCpuTime();
            began = System.nanoTime();
        }
        try {
            JsonNode parsed = JSON.readTree(ride);
            return JSON.writeValueAsString(parsed);
        } catch (IOException problem) {
            throw new UncheckedIOException(problem);
        } finally {
            if (--left == 0) {
                DONE.countDown();
            }
        }
    }

    public static void main(String[] given) throws InterruptedException {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, given[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, given[1]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, given[4]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, given[6]);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest");
        left = Long.parseLong(given[5]);
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(given[2]).mapValues(StreamsService::price).to(given[3]);
        KafkaStreams service = new KafkaStreams(builder.build(), settings);
        service.start();
        DONE.await();
        boolean stopped = service.close(Duration.ofSeconds(60));
        long seconds = System.nanoTime() - began;
        if (!stopped) {
            System.exit(1);
        }
        System.out.printf(
                "{\"seconds\": %.3f, \"cpu_s\": %.3f}%n",
                seconds / 1e9, (SYSTEM.getProcessCpuTime() - cpuBegan) / 1e9);
    }
}
