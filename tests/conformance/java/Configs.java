import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Every setting of brokers and topics with its default, as text: kind, name, default, between tabs. Without a default there is no third. */
public class Configs {
    public static void main(String[] arguments) {
        print("broker", AbstractKafkaConfig.CONFIG_DEF);
        print("topic", LogConfig.configDefCopy());
    }

    private static void print(String kind, ConfigDef definition) {
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            Object value = key.defaultValue;
            System.out.println(kind + "\t" + key.name + (value == ConfigDef.NO_DEFAULT_VALUE ? "" : "\t" + ConfigDef.convertToString(value, key.type)));
        }
    }
}
