// Apache Kafka's own producer and consumer under faults; arguments and output as in `tests.interop.client_faults.events`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class FaultClient {
    private static volatile boolean writing = true;
    private static volatile boolean running = true;

    private static synchronized void say(String kind, Object... words) {
        StringBuilder line = new StringBuilder(kind).append(' ').append(System.nanoTime());
        for (Object word : words) {
            line.append(' ').append(word);
        }
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        String bootstrap = arguments[0], topic = arguments[1], group = arguments[2];
        int partitions = Integer.parseInt(arguments[3]), pause = Integer.parseInt(arguments[4]);
        String timeout = arguments[5], protocol = arguments[6];
        Thread writer = new Thread(() -> write(bootstrap, topic, partitions, pause, timeout));
        Thread reader = new Thread(() -> read(bootstrap, topic, group, timeout, protocol));
        writer.start();
        reader.start();
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        orders.readLine();
        writing = false;
        writer.join();
        say("done");
        orders.readLine();
        running = false;
        reader.join();
    }

    private static void write(String bootstrap, String topic, int partitions, int pause, String timeout) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        options.put("linger.ms", "0");
        options.put("delivery.timeout.ms", "300000");
        options.put("request.timeout.ms", timeout);
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(options, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; writing; number++) {
                String value = Integer.toString(number);
                producer.send(new ProducerRecord<>(topic, number % partitions, null, value), (metadata, problem) -> {
                    if (problem == null) {
                        say("acknowledged", value);
                    } else {
                        say("failed", value, problem.getClass().getSimpleName());
                    }
                });
                Thread.sleep(pause);
            }
        } catch (Exception problem) {
            say("ended", "producer", problem.getClass().getSimpleName());
        }
    }

    private static void read(String bootstrap, String topic, String group, String timeout, String protocol) {
        Properties options = new Properties();
        options.put("bootstrap.servers", bootstrap);
        options.put("group.id", group);
        options.put("group.protocol", protocol);
        options.put("auto.offset.reset", "earliest");
        options.put("auto.commit.interval.ms", "1000");
        options.put("request.timeout.ms", timeout);
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(options, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    say("assigned", partitions.size());
                }

                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    say("revoked", partitions.size());
                }

                public void onPartitionsLost(Collection<TopicPartition> partitions) {
                    say("lost", partitions.size());
                }
            });
            while (running) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    say("read", record.value(), record.partition(), record.offset());
                }
            }
        } catch (Exception problem) {
            say("ended", "consumer", problem.getClass().getSimpleName());
        }
    }
}
