import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.OutOfOrderSequenceException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringSerializer;

/** Kafka's own producers, one idempotent and one in transactions, until standard input ends; tests/chaos/foreign_clients.py has the lines. */
public class Writer {
    private static final int IN_FLIGHT = 8;
    private static final double ABORTED = 0.2;
    private static final String[] WRITERS = {"java", "java-transactions"};
    private static final PrintStream OUTCOMES = System.out;
    private static volatile long graceUntilNanos = 0;
    private static volatile boolean over = false;

    public static void main(String[] words) throws Exception {
        String servers = words[0], plain = words[1], transactional = words[2];
        int partitions = Integer.parseInt(words[3]), patience = Integer.parseInt(words[4]);
        Thread first = new Thread(() -> write(servers, plain, partitions, patience));
        Thread second = new Thread(() -> writeInTransactions(servers, transactional, partitions, new Random(Long.parseLong(words[5]))));
        first.start();
        second.start();
        while (System.in.read() >= 0) {
        }
        graceUntilNanos = System.nanoTime() + 30_000_000_000L * patience;
        over = true;
        first.join();
        second.join();
    }

    private static void tell(String outcome, String writer, String rest) {
        synchronized (OUTCOMES) {
            OUTCOMES.println(outcome + " " + writer + " " + rest);
            OUTCOMES.flush();
        }
    }

    private static KafkaProducer<String, String> producer(String servers, Map<String, Object> more) {
        Map<String, Object> settings = new java.util.HashMap<>(more);
        settings.put("bootstrap.servers", servers);
        settings.put("linger.ms", 0);
        settings.put("max.block.ms", 10_000);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private static ProducerRecord<String, String> record(String topic, int partitions, String value) {
        int number = Integer.parseInt(value.substring(value.lastIndexOf(':') + 1));
        return new ProducerRecord<>(topic, number % partitions, null, value);
    }

    private static void write(String servers, String topic, int partitions, int patience) {
        int number = 0;
        Map<String, Object> settings = Map.of("acks", "all", "enable.idempotence", true, "delivery.timeout.ms", 60_000 * patience);
        while (!over) {
            KafkaProducer<String, String> producer = producer(servers, settings);
            Semaphore free = new Semaphore(IN_FLIGHT);
            AtomicBoolean broken = new AtomicBoolean();
            while (!over && !broken.get()) {
                free.acquireUninterruptibly();
                String value = WRITERS[0] + ":" + number++;
                tell("tried", WRITERS[0], value);
                try {
                    producer.send(record(topic, partitions, value), (metadata, problem) -> {
                        tell(problem == null ? "acknowledged" : "failed", WRITERS[0], value);
                        free.release();
                    });
                } catch (KafkaException problem) {
                    tell("failed", WRITERS[0], value);
                    broken.set(true);
                }
            }
            producer.close();
        }
    }

    private static void writeInTransactions(String servers, String topic, int partitions, Random drawn) {
        int[] number = {0};
        while (!over) {
            try (KafkaProducer<String, String> producer = producer(servers,
                    Map.of("transactional.id", WRITERS[1], "transaction.timeout.ms", 20_000))) {
                again(producer::initTransactions);
                while (!over) {
                    List<String> values = new ArrayList<>();
                    for (int count = 2 + drawn.nextInt(7); count > 0; count--) {
                        values.add(WRITERS[1] + ":" + number[0]++);
                    }
                    String joined = String.join(" ", values);
                    tell("tried", WRITERS[1], joined);
                    transaction(producer, topic, partitions, values, joined, drawn.nextDouble() < ABORTED);
                }
            } catch (KafkaException problem) {
                // The transaction's outcome is printed; another producer goes on.
            }
        }
    }

    private static void transaction(KafkaProducer<String, String> producer, String topic, int partitions, List<String> values, String joined,
            boolean abort) {
        String call = "produce";
        try {
            try {
                producer.beginTransaction();
                for (String value : values) {
                    producer.send(record(topic, partitions, value));
                }
                if (!abort) {
                    call = "commit";
                    again(producer::commitTransaction);
                    tell("committed", WRITERS[1], joined);
                    return;
                }
                producer.flush();
            } catch (ProducerFencedException | InvalidProducerEpochException | OutOfOrderSequenceException | AuthorizationException | TimeoutException fatal) {
                if (!(fatal instanceof TimeoutException) || call.equals("commit")) {
                    throw fatal;
                }
            } catch (KafkaException problem) {
                // To be aborted.
            }
            call = "abort after " + call;
            again(producer::abortTransaction);
            tell("aborted", WRITERS[1], joined);
        } catch (KafkaException problem) {
            tell("unknown", WRITERS[1], joined + "\t" + call + ", " + problem.getClass().getSimpleName());
            throw problem;
        }
    }

    /** Repeats a call that timed out, after the end only for a grace time. */
    private static void again(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException problem) {
                if (over && System.nanoTime() > graceUntilNanos) {
                    throw problem;
                }
            }
        }
    }
}
