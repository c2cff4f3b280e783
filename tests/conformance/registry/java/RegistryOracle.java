// Judges schemas with Confluent's own Java client (7.5.3, shaded) and drives a registry with its RestService.
//
// In, one JSON object a line:
//   {"ask": "parse", "schema": S, "references": {NAME: S, …}, "new": true}
//   {"ask": "compare", "reader": S, "writer": S}                 all incompatibilities of one pair
//   {"ask": "check", "level": L, "schema": S, "earlier": [S, …]} earlier ones oldest first
//   {"ask": "hash", "schema": S, "references": […], "metadata": {…}, "ruleSet": {…}}
//   {"ask": "rest", "url": U, "subject": T, "schemas": [S, S, S]} a round with RestService: the steps and their outcome
// Out, one line each: {"ok": …} or {"error": "class: text"}.

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.CompatibilityChecker;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.CompatibilityLevel;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.RestService;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Config;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.Metadata;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.RuleSet;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.SchemaReference;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.entities.requests.ConfigUpdateRequest;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.avro.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.avro.shaded.org.apache.avro.SchemaCompatibility;

public final class RegistryOracle {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", answer(JSON.readTree(line)));
            } catch (Exception | StackOverflowError problem) {
                answer.put("error", problem.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    static JsonNode answer(JsonNode question) throws Exception {
        switch (question.get("ask").asText()) {
            case "parse":
                return parse(question);
            case "compare":
                return compare(question);
            case "check":
                return check(question);
            case "hash":
                return hash(question);
            case "rest":
                return rest(question.get("url").asText(), question.get("subject").asText(), question.get("schemas"));
            default:
                throw new IllegalArgumentException("no such question");
        }
    }

    static JsonNode parse(JsonNode question) {
        Map<String, String> references = new LinkedHashMap<>();
        question.get("references").fields().forEachRemaining(one -> references.put(one.getKey(), one.getValue().asText()));
        AvroSchema schema = new AvroSchema(
            question.get("schema").asText(), Collections.emptyList(), references, null, question.get("new").asBoolean());
        ObjectNode found = JSON.createObjectNode().put("canonical", schema.canonicalString()).putNull("normalized");
        try {
            found.put("normalized", schema.normalize().canonicalString());
        } catch (RuntimeException defect) {
            // Java's normal form fails for some valid schemas: an empty union in a field, a property beyond 64 bits.
        }
        return found;
    }

    static JsonNode compare(JsonNode question) {
        ArrayNode found = JSON.createArrayNode();
        SchemaCompatibility.checkReaderWriterCompatibility(
                new AvroSchema(question.get("reader").asText()).rawSchema(),
                new AvroSchema(question.get("writer").asText()).rawSchema())
            .getResult()
            .getIncompatibilities()
            .forEach(one -> found.addObject()
                .put("kind", one.getType().name())
                .put("path", one.getLocation())
                .put("info", one.getMessage()));
        return found;
    }

    static JsonNode check(JsonNode question) {
        List<AvroSchema> earlier = new ArrayList<>();
        question.get("earlier").forEach(one -> earlier.add(new AvroSchema(one.asText())));
        List<String> messages = CompatibilityChecker
            .checker(CompatibilityLevel.forName(question.get("level").asText()))
            .isCompatible(new AvroSchema(question.get("schema").asText()), earlier);
        return JSON.valueToTree(messages);
    }

    static JsonNode hash(JsonNode question) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("MD5");
        digest.update(question.get("schema").asText().getBytes(StandardCharsets.UTF_8));
        for (JsonNode one : question.get("references")) {
            JSON.treeToValue(one, SchemaReference.class).updateHash(digest);
        }
        if (question.hasNonNull("metadata")) {
            digest.update((byte) 1);
            JSON.treeToValue(question.get("metadata"), Metadata.class).updateHash(digest);
        }
        if (question.hasNonNull("ruleSet")) {
            digest.update((byte) 1);
            JSON.treeToValue(question.get("ruleSet"), RuleSet.class).updateHash(digest);
        }
        return JSON.getNodeFactory().textNode(HexFormat.of().formatHex(digest.digest()));
    }

    interface Step {
        Object run() throws IOException, RestClientException;
    }

    static JsonNode rest(String url, String subject, JsonNode schemas) throws IOException {
        RestService rest = new RestService(url);
        ObjectNode found = JSON.createObjectNode();
        String first = schemas.get(0).asText();
        String second = schemas.get(1).asText();
        String bad = schemas.get(2).asText();
        step(found, "register", () -> rest.registerSchema(first, subject));
        step(found, "register again", () -> rest.registerSchema(first, subject));
        step(found, "register second", () -> rest.registerSchema(second, subject));
        step(found, "register bad", () -> rest.registerSchema(bad, subject));
        step(found, "register nonsense", () -> rest.registerSchema("{}", subject));
        step(found, "look up", () -> rest.lookUpSubjectVersion(second, subject).getVersion());
        step(found, "look up unknown", () -> rest.lookUpSubjectVersion(bad, subject));
        step(found, "look up no subject", () -> rest.lookUpSubjectVersion(bad, subject + "?"));
        step(found, "compatible", () -> rest.testCompatibility(second, subject, "latest"));
        step(found, "incompatible", () -> rest.testCompatibility(bad, subject, "latest").size() > 0);
        step(found, "text", () -> rest.getId(rest.getLatestVersion(subject).getId()).getSchemaString());
        step(found, "versions", () -> rest.getAllVersions(subject));
        step(found, "subjects", () -> rest.getAllSubjects().contains(subject));
        step(found, "types", () -> rest.getSchemaTypes());
        step(found, "config", () -> rest.getConfig(null).getCompatibilityLevel());
        step(found, "no config", () -> rest.getConfig(subject));
        step(found, "put config", () -> rest.updateConfig(new ConfigUpdateRequest(new Config("NONE")), subject).getCompatibilityLevel());
        step(found, "get config", () -> rest.getConfig(subject).getCompatibilityLevel());
        step(found, "bad config", () -> rest.updateCompatibility("SIDEWAYS", subject));
        step(found, "register bad at none", () -> rest.registerSchema(bad, subject));
        step(found, "delete config", () -> rest.deleteConfig(Collections.emptyMap(), subject).getCompatibilityLevel());
        step(found, "mode", () -> rest.getMode().getMode());
        step(found, "read only", () -> rest.setMode("READONLY", subject).getMode());
        step(found, "register read only", () -> rest.registerSchema("\"bytes\"", subject));
        step(found, "mode again", () -> rest.deleteSubjectMode(Collections.emptyMap(), subject).getMode());
        step(found, "delete version", () -> rest.deleteSchemaVersion(Collections.emptyMap(), subject, "1"));
        step(found, "deleted version", () -> rest.getVersion(subject, 1));
        step(found, "delete", () -> rest.deleteSubject(Collections.emptyMap(), subject));
        step(found, "delete again", () -> rest.deleteSubject(Collections.emptyMap(), subject));
        step(found, "delete for good", () -> rest.deleteSubject(Collections.emptyMap(), subject, true));
        step(found, "delete nothing", () -> rest.deleteSubject(Collections.emptyMap(), subject));
        return found;
    }

    static void step(ObjectNode found, String name, Step step) throws IOException {
        try {
            found.set(name, JSON.valueToTree(step.run()));
        } catch (RestClientException refusal) {
            found.put(name, refusal.getErrorCode());
        }
    }
}
