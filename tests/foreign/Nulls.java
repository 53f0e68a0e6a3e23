// Reads fields of objects, some of which are not there. Each of those is a fault that the runtime
// turns into an exception. Prints their number and the nanoseconds that one takes.
public class Nulls {
    int value = 1;

    static int read(Nulls from) {
        try {
            return from.value;
        } catch (NullPointerException missing) {
            return 0;
        }
    }

    public static void main(String[] arguments) {
        int count = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 30000;
        Nulls there = new Nulls();
        int sum = 0;
        for (int at = 0; at < 20000; at++) sum += read(there);
        long begun = System.nanoTime();
        for (int at = 0; at < count; at++) sum += read(null);
        long ended = System.nanoTime();
        System.out.println(sum + " " + (ended - begun) / count + " ns each");
    }
}
