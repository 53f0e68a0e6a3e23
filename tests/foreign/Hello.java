// A web server of the JDK's: answers every request with a few words, by a thread for each connection that is busy.
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.Executors;

public class Hello {
    public static void main(String[] arguments) throws IOException {
        int port = Integer.parseInt(arguments[0]);
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 64);
        server.createContext("/", exchange -> {
            byte[] text = ("hello " + List.of(1, 2, 3)).getBytes(StandardCharsets.UTF_8);
            exchange.sendResponseHeaders(200, text.length);
            try (var body = exchange.getResponseBody()) {
                body.write(text);
            }
        });
        server.setExecutor(Executors.newCachedThreadPool());
        server.start();
    }
}
