// Recursion, objects, interface calls, strings and a map. Prints a sum, and the microseconds of the
// second half of the rounds.
import java.util.HashMap;
import java.util.Map;

public class Numbers {
    static final int ROUNDS = 16;

    interface Step {
        int of(int number);
    }

    record Point(int x, int y) {
        Point plus(Point other) {
            return new Point(x + other.x, y ^ other.y);
        }
    }

    static final Step[] STEPS = {n -> n + 1, n -> n * 3 & 0xffffff, n -> n ^ 7};

    static int fibonacci(int n) {
        return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
    }

    static int round(int number) {
        int sum = fibonacci(30);
        Point point = new Point(0, 0);
        for (int at = 0; at < 3_000_000; at++) point = point.plus(new Point(at & 3, at));
        sum += point.x + point.y;
        for (int at = 0; at < 6_000_000; at++) sum = STEPS[at % 3].of(sum) & 0xffffff;
        Map<String, Integer> map = new HashMap<>();
        for (int at = 0; at < 200_000; at++)
            map.merge("key " + (at * 7 + number) % 4000, at, Integer::sum);
        for (int value : map.values()) sum = sum + value & 0xffffff;
        return sum;
    }

    public static void main(String[] arguments) {
        int sum = 0;
        long begun = 0;
        for (int number = 0; number < ROUNDS; number++) {
            if (number == ROUNDS / 2) begun = System.nanoTime();
            sum = sum * 31 + round(number) & 0xffffff;
        }
        System.out.println(sum);
        System.out.println((System.nanoTime() - begun) / 1000);
    }
}
