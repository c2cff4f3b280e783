// Reads messages from standard input with Kafka's own generated classes and says on standard output what they hold.
//
// In, repeated:  name (UTF with two-byte length), version (short), size (int), bytes.
// Out, for each: ok (byte), then three sized pieces: JSON, the message as Kafka encodes it, the whole frame around it
//                (empty for headers); after an error (ok = 0) one piece, the error's text.
// The name "Errors" asks for the table of error codes, "ApiKeys" for that of the APIs: one piece of JSON each.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.network.Send;
import org.apache.kafka.common.network.TransferableChannel;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.common.protocol.SendBuilder;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.requests.ResponseHeader;

public final class Oracle {
    static final int CORRELATION_ID = 7;
    static final String CLIENT_ID = "client";
    static final String PACKAGE = "org.apache.kafka.common.message.";
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            String name;
            try {
                name = in.readUTF();
            } catch (EOFException end) {
                break;
            }
            short version = in.readShort();
            byte[] bytes = in.readNBytes(in.readInt());
            byte[][] pieces;
            boolean ok = true;
            try {
                pieces = answer(name, version, bytes);
            } catch (InvocationTargetException problem) {
                ok = false;
                pieces = new byte[][] {problem.getCause().toString().getBytes(StandardCharsets.UTF_8)};
            } catch (Exception problem) {
                ok = false;
                pieces = new byte[][] {problem.toString().getBytes(StandardCharsets.UTF_8)};
            }
            out.writeByte(ok ? 1 : 0);
            out.writeByte(pieces.length);
            for (byte[] piece : pieces) {
                out.writeInt(piece.length);
                out.write(piece);
            }
            out.flush();
        }
    }

    static byte[][] answer(String name, short version, byte[] bytes) throws Exception {
        if (name.equals("Errors")) {
            return new byte[][] {JSON.writeValueAsBytes(errors())};
        }
        if (name.equals("ApiKeys")) {
            return new byte[][] {JSON.writeValueAsBytes(apiKeys())};
        }
        Class<?> type = Class.forName(PACKAGE + name + "Data");
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        Message message = (Message) type.getConstructor(Readable.class, short.class)
            .newInstance(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            throw new IllegalStateException(buffer.remaining() + " bytes left over");
        }
        JsonNode json = (JsonNode) Class.forName(PACKAGE + name + "DataJsonConverter")
            .getMethod("write", type, short.class, boolean.class)
            .invoke(null, message, version, false); // records by their size
        ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] encoded = new byte[again.remaining()];
        again.get(encoded);
        return new byte[][] {JSON.writeValueAsBytes(json), encoded, frame(name, version, message)};
    }

    static byte[] frame(String name, short version, Message message) throws IOException {
        if (name.endsWith("Header")) {
            return new byte[0];
        }
        ApiMessage body = (ApiMessage) message;
        ApiKeys key = ApiKeys.forId(body.apiKey());
        Send send = name.endsWith("Request")
            ? SendBuilder.buildRequestSend(new RequestHeader(key, version, CLIENT_ID, CORRELATION_ID), body)
            : SendBuilder.buildResponseSend(
                new ResponseHeader(CORRELATION_ID, key.responseHeaderVersion(version)), body, version);
        Collected channel = new Collected();
        while (!send.completed()) {
            send.writeTo(channel);
        }
        return channel.bytes.toByteArray();
    }

    static ArrayNode errors() {
        ArrayNode table = JsonNodeFactory.instance.arrayNode();
        for (Errors error : Errors.values()) {
            table.addObject()
                .put("name", error.name())
                .put("code", error.code())
                .put("retriable", error.exception() instanceof RetriableException);
        }
        return table;
    }

    static ArrayNode apiKeys() {
        ArrayNode table = JsonNodeFactory.instance.arrayNode();
        for (ApiKeys key : ApiKeys.values()) {
            if (key.hasValidVersion()) {
                table.addObject()
                    .put("name", key.name())
                    .put("key", key.id)
                    .put("min", key.oldestVersion())
                    .put("max", key.latestVersion(false));
            }
        }
        return table;
    }

    /** A channel that keeps what is written to it. */
    static final class Collected implements TransferableChannel {
        final ByteArrayOutputStream bytes = new ByteArrayOutputStream();

        @Override
        public int write(ByteBuffer source) {
            int size = source.remaining();
            byte[] copy = new byte[size];
            source.get(copy);
            bytes.writeBytes(copy);
            return size;
        }

        @Override
        public long write(ByteBuffer[] sources, int offset, int length) {
            long total = 0;
            for (int index = offset; index < offset + length; index++) {
                total += write(sources[index]);
            }
            return total;
        }

        @Override
        public long write(ByteBuffer[] sources) {
            return write(sources, 0, sources.length);
        }

        @Override
        public boolean hasPendingWrites() {
            return false;
        }

        @Override
        public long transferFrom(FileChannel file, long position, long count) {
            throw new UnsupportedOperationException("records come from memory here");
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {
        }
    }
}
