// Kafka's FetchSessionHandler, asked line by line; see `tests.conformance.test_fetch_sessions`.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.TreeSet;
import org.apache.kafka.clients.FetchSessionHandler;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.FetchResponseData;
import org.apache.kafka.common.requests.FetchRequest;
import org.apache.kafka.common.requests.FetchResponse;
import org.apache.kafka.common.utils.LogContext;

public class FetchSessions {
    private static final short VERSION = 17;

    public static void main(String[] none) throws Exception {
        FetchSessionHandler handler = null;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "new" -> handler = new FetchSessionHandler(new LogContext(), 1);
                case "failed" -> handler.handleError(new RuntimeException());
                case "request" -> System.out.println(request(handler, words));
                case "response" -> System.out.println(response(handler, words));
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    // request PARTITION:OFFSET:TOPIC_ID...
    private static String request(FetchSessionHandler handler, String[] words) {
        FetchSessionHandler.Builder builder = handler.newBuilder();
        for (int at = 1; at < words.length; at++) {
            String[] parts = words[at].split(":");
            Uuid id = new Uuid(0, Long.parseLong(parts[2]));
            builder.add(
                    new TopicPartition("t", Integer.parseInt(parts[0])),
                    new FetchRequest.PartitionData(
                            id, Long.parseLong(parts[1]), -1, 1024, Optional.empty(), Optional.empty()));
        }
        FetchSessionHandler.FetchRequestData data = builder.build();
        TreeSet<Integer> send = new TreeSet<>();
        data.toSend().keySet().forEach(partition -> send.add(partition.partition()));
        TreeSet<String> forget = new TreeSet<>();
        for (List<TopicIdPartition> list : List.of(data.toForget(), data.toReplace())) {
            list.forEach(each -> forget.add(each.partition() + ":" + each.topicId().getLeastSignificantBits()));
        }
        return data.metadata().sessionId() + " " + data.metadata().epoch() + " " + send + " " + forget;
    }

    // response ERROR SESSION_ID TOPIC_ID PARTITION...
    private static boolean response(FetchSessionHandler handler, String[] words) {
        FetchResponseData data = new FetchResponseData();
        data.setErrorCode(Short.parseShort(words[1])).setSessionId(Integer.parseInt(words[2]));
        List<FetchResponseData.PartitionData> partitions = new ArrayList<>();
        for (int at = 4; at < words.length; at++) {
            partitions.add(new FetchResponseData.PartitionData().setPartitionIndex(Integer.parseInt(words[at])));
        }
        if (!partitions.isEmpty()) {
            data.responses().add(new FetchResponseData.FetchableTopicResponse()
                    .setTopicId(new Uuid(0, Long.parseLong(words[3])))
                    .setPartitions(partitions));
        }
        return handler.handleResponse(FetchResponse.of(data), VERSION);
    }
}
