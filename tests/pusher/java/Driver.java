import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonParser;
import com.pusher.client.PusherOptions;
import com.pusher.client.channel.PresenceChannelEventListener;
import com.pusher.client.channel.PrivateEncryptedChannelEventListener;
import com.pusher.client.channel.PusherEvent;
import com.pusher.client.channel.User;
import com.pusher.client.connection.ConnectionEventListener;
import com.pusher.client.connection.ConnectionState;
import com.pusher.client.connection.ConnectionStateChange;
import com.pusher.rest.Pusher;
import com.pusher.rest.data.Event;
import com.pusher.rest.data.PresenceUser;
import com.pusher.rest.data.Result;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import javax.crypto.Mac;
import javax.crypto.spec.SecretKeySpec;

/** Runs pusher-java-client and pusher-http-java: one JSON action per line, one result per line. */
public class Driver {
    static final Gson GSON = new GsonBuilder().serializeNulls().create();
    static final String MASTER_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

    /** A client of the test, with what its listeners got. */
    static class Client {
        com.pusher.client.Pusher pusher;
        final List<Map<String, Object>> seen = new CopyOnWriteArrayList<>();

        void note(String event, String channel, Object data) {
            Map<String, Object> entry = new HashMap<>();
            entry.put("event", event);
            entry.put("channel", channel);
            entry.put("data", data);
            seen.add(entry);
        }
    }

    static class Listener implements PresenceChannelEventListener, PrivateEncryptedChannelEventListener {
        final Client client;

        Listener(Client client) { this.client = client; }

        public void onEvent(PusherEvent event) {
            Map<String, Object> data = new TreeMap<>();
            data.put("data", event.getData());
            data.put("user_id", event.getUserId());
            client.note(event.getEventName(), event.getChannelName(), data);
        }

        public void onError(String message, Exception error) { client.note("error", null, message); }

        public void onSubscriptionSucceeded(String channel) { client.note("subscribed", channel, null); }

        public void onAuthenticationFailure(String message, Exception error) { client.note("refused", null, message); }

        public void onDecryptionFailure(String event, String reason) { client.note("not decrypted", event, reason); }

        public void onUsersInformationReceived(String channel, Set<User> users) {
            List<String> ids = new ArrayList<>();
            users.forEach(user -> ids.add(user.getId()));
            ids.sort(null);
            client.note("here", channel, ids);
        }

        public void userSubscribed(String channel, User user) { client.note("joined", channel, user.getId()); }

        public void userUnsubscribed(String channel, User user) { client.note("left", channel, user.getId()); }
    }

    static final Map<String, Client> clients = new ConcurrentHashMap<>();
    static JsonObject app;
    static Pusher server;

    static String text(JsonObject from, String name) {
        return from.has(name) && !from.get(name).isJsonNull() ? from.get(name).getAsString() : null;
    }

    static List<String> texts(JsonObject from, String name) {
        List<String> all = new ArrayList<>();
        from.getAsJsonArray(name).forEach(item -> all.add(item.getAsString()));
        return all;
    }

    static Object shown(Result result) {
        Map<String, Object> shown = new HashMap<>();
        shown.put("status", result.getHttpStatus());
        shown.put("body", result.getMessage());
        return shown;
    }

    static String hmac(String signed) throws Exception {
        Mac mac = Mac.getInstance("HmacSHA256");
        mac.init(new SecretKeySpec(text(app, "secret").getBytes(StandardCharsets.UTF_8), "HmacSHA256"));
        StringBuilder digits = new StringBuilder();
        for (byte part : mac.doFinal(signed.getBytes(StandardCharsets.UTF_8))) digits.append(String.format("%02x", part));
        return digits.toString();
    }

    static Object run(JsonObject action) throws Exception {
        Client client = action.has("name") ? clients.get(text(action, "name")) : null;
        String channel = text(action, "channel");
        switch (text(action, "do")) {
            case "server": {
                app = action.getAsJsonObject("app");
                server = new Pusher(text(app, "id"), text(app, "key"), text(app, "secret"), MASTER_KEY);
                server.setHost("127.0.0.1:" + action.get("port").getAsInt());
                return null;
            }
            case "publish": {
                Object data = GSON.fromJson(action.get("data"), Object.class);
                List<String> channels = texts(action, "channels");
                return shown(channels.size() == 1
                        ? server.trigger(channels.get(0), text(action, "event"), data, text(action, "except"))
                        : server.trigger(channels, text(action, "event"), data, text(action, "except")));
            }
            case "batch": {
                List<Event> events = new ArrayList<>();
                for (JsonElement item : action.getAsJsonArray("events")) {
                    JsonObject event = item.getAsJsonObject();
                    events.add(new Event(text(event, "channel"), text(event, "name"), GSON.fromJson(event.get("data"), Object.class)));
                }
                return shown(server.trigger(events));
            }
            case "get": {
                Map<String, String> params = new HashMap<>();
                action.getAsJsonObject("params").entrySet().forEach(one -> params.put(one.getKey(), one.getValue().getAsString()));
                return shown(server.get(text(action, "path"), params));
            }
            case "post": return shown(server.post(text(action, "path"), text(action, "body")));
            case "validate": return server.validateWebhookSignature(text(action, "key"), text(action, "signature"), text(action, "body")).toString();
            case "connect": {
                Client fresh = new Client();
                String user = text(action, "user");
                PusherOptions options = new PusherOptions().setHost("127.0.0.1").setWsPort(action.get("port").getAsInt()).setUseTLS(false);
                options.setChannelAuthorizer((name, socket) -> name.startsWith("presence-")
                        ? server.authenticate(socket, name, new PresenceUser(user, Map.of("of", "java"))) : server.authenticate(socket, name));
                options.setUserAuthenticator(socket -> {
                    try {
                        String data = GSON.toJson(Map.of("id", user));
                        return GSON.toJson(Map.of("auth", text(app, "key") + ":" + hmac(socket + "::user::" + data), "user_data", data));
                    } catch (Exception error) {
                        throw new IllegalStateException(error);
                    }
                });
                String key = action.has("key") ? text(action, "key") : text(app, "key");
                fresh.pusher = new com.pusher.client.Pusher(key, options);
                clients.put(text(action, "name"), fresh);
                fresh.pusher.connect(new ConnectionEventListener() {
                    public void onConnectionStateChange(ConnectionStateChange change) { fresh.note("state", null, change.getCurrentState().toString()); }

                    public void onError(String message, String code, Exception error) { fresh.note("error", code, message); }
                }, ConnectionState.ALL);
                return null;
            }
            case "state": return client.pusher.getConnection().getState().toString();
            case "socket": return client.pusher.getConnection().getSocketId();
            case "subscribe": {
                Listener listener = new Listener(client);
                if (channel.startsWith("private-encrypted-")) client.pusher.subscribePrivateEncrypted(channel, listener).bindGlobal(listener);
                else if (channel.startsWith("private-")) client.pusher.subscribePrivate(channel, listener).bindGlobal(listener);
                else if (channel.startsWith("presence-")) client.pusher.subscribePresence(channel, listener).bindGlobal(listener);
                else client.pusher.subscribe(channel, listener).bindGlobal(listener);
                return null;
            }
            case "unsubscribe": client.pusher.unsubscribe(channel); return null;
            case "trigger": {
                String data = action.get("data").toString();
                if (channel.startsWith("presence-")) client.pusher.getPresenceChannel(channel).trigger(text(action, "event"), data);
                else client.pusher.getPrivateChannel(channel).trigger(text(action, "event"), data);
                return null;
            }
            case "members": {
                Map<String, Object> members = new TreeMap<>();
                client.pusher.getPresenceChannel(channel).getUsers().forEach(user -> members.put(user.getId(), user.getInfo()));
                return members;
            }
            case "signin": {
                client.pusher.user().bindGlobal(event -> client.note("user:" + event.getEventName(), null, event.getData()));
                client.pusher.signin();
                return null;
            }
            case "user": return client.pusher.user().userId();
            case "seen": return new ArrayList<>(client.seen);
            case "disconnect": client.pusher.disconnect(); return null;
            default: throw new IllegalArgumentException(text(action, "do"));
        }
    }

    public static void main(String[] arguments) throws Exception {
        // Whatever the libraries print must not mix with the answers.
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            Map<String, Object> answer = new HashMap<>();
            try {
                answer.put("ok", run(JsonParser.parseString(line).getAsJsonObject()));
            } catch (Throwable fault) {
                StringWriter trace = new StringWriter();
                fault.printStackTrace(new PrintWriter(trace));
                answer.put("fault", trace.toString());
            }
            answers.println(GSON.toJson(answer));
        }
        System.exit(0);
    }
}
