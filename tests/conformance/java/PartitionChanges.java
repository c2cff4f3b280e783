import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.controller.PartitionChangeBuilder;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.server.common.MetadataVersion;

/**
 * Kafka's PartitionChangeBuilder: a case a line in, its record a line out. Fields of a case are between ';': replicas, isr, elr, last known elr,
 * removing, adding, leader, recovery state, live brokers, min isr, elr enabled, election, then the targets, '-' for none: isr, replicas, removing,
 * adding, recovery state, unclean brokers, broker with a new directory. Brokers of a list are between ','. The directory of broker n is n + 1000,
 * its new one n + 2000.
 */
public class PartitionChanges {
    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        StringBuilder out = new StringBuilder();
        while (lines.hasNextLine()) {
            out.append(answer(lines.nextLine().split(";", -1))).append('\n');
        }
        System.out.print(out);
    }

    private static String answer(String[] fields) {
        List<Integer> replicas = list(fields[0]);
        PartitionRegistration partition = new PartitionRegistration.Builder()
            .setReplicas(array(fields[0]))
            .setDirectories(replicas.stream().map(broker -> new Uuid(0, broker + 1000)).toArray(Uuid[]::new))
            .setIsr(array(fields[1]))
            .setElr(array(fields[2]))
            .setLastKnownElr(array(fields[3]))
            .setRemovingReplicas(array(fields[4]))
            .setAddingReplicas(array(fields[5]))
            .setLeader(Integer.valueOf(fields[6]))
            .setLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(fields[7])))
            .setLeaderEpoch(0)
            .setPartitionEpoch(0)
            .build();
        Set<Integer> live = Set.copyOf(list(fields[8]));
        PartitionChangeBuilder builder = new PartitionChangeBuilder(partition, new Uuid(0, 7), 0, live::contains,
            MetadataVersion.latestProduction(), Integer.parseInt(fields[9]), Boolean.parseBoolean(fields[10]));
        builder.setDefaultDirProvider(broker -> new Uuid(0, broker + 1000));
        builder.setElection(PartitionChangeBuilder.Election.valueOf(fields[11]));
        if (!fields[12].equals("-")) builder.setTargetIsr(list(fields[12]));
        if (!fields[13].equals("-")) builder.setTargetReplicas(list(fields[13]));
        if (!fields[14].equals("-")) builder.setTargetRemoving(list(fields[14]));
        if (!fields[15].equals("-")) builder.setTargetAdding(list(fields[15]));
        if (!fields[16].equals("-")) builder.setTargetLeaderRecoveryState(LeaderRecoveryState.of(Byte.parseByte(fields[16])));
        if (!fields[17].equals("-")) builder.setUncleanShutdownReplicas(list(fields[17]));
        if (!fields[18].equals("-")) {
            int broker = Integer.parseInt(fields[18]);
            builder.setDirectory(broker, new Uuid(0, broker + 2000));
        }
        return builder.build().map(built -> text((PartitionChangeRecord) built.message())).orElse("none");
    }

    private static String text(PartitionChangeRecord record) {
        String directories = record.directories() == null ? "-" : record.directories().stream()
            .map(directory -> String.valueOf(directory.getLeastSignificantBits())).collect(Collectors.joining(","));
        return String.join(";", text(record.isr()), text(record.eligibleLeaderReplicas()), text(record.lastKnownElr()),
            String.valueOf(record.leader()), String.valueOf(record.leaderRecoveryState()), text(record.replicas()),
            text(record.removingReplicas()), text(record.addingReplicas()), directories);
    }

    private static String text(List<Integer> brokers) {
        return brokers == null ? "-" : brokers.stream().map(String::valueOf).collect(Collectors.joining(","));
    }

    private static List<Integer> list(String text) {
        return Arrays.stream(array(text)).boxed().collect(Collectors.toList());
    }

    private static int[] array(String text) {
        return text.isEmpty() ? new int[0] : Arrays.stream(text.split(",")).mapToInt(Integer::parseInt).toArray();
    }
}
