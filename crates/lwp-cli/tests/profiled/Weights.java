package some.work;

/** Methods whose rounds of one loop have known numbers; heavy has three times those of light. */
public class Weights {
    static int light(int n) {
        int total = 0;
        for (int i = 0; i < n; i++) {
            total += i & 7;
        }
        return total;
    }

    static int heavy(int n) {
        int total = 0, rounds = 3 * n;
        for (int i = 0; i < rounds; i++) {
            total += i & 7;
        }
        return total;
    }

    interface Shape {
        int area(int n);
    }

    static class Square implements Shape {
        public int area(int n) {
            int first = light(n);
            return first + heavy(n);
        }
    }

    int twice(int n) {
        int first = light(n);
        return first + light(n);
    }

    static int each(int n) throws Exception {
        // Through a virtual machine that calls Java again.
        java.lang.reflect.Method light = Weights.class.getDeclaredMethod("light", int.class);
        int total = 0;
        for (int i = 0; i < 3; i++) {
            total += (Integer) light.invoke(null, n);
        }
        return total;
    }

    public static void main(String[] words) throws Exception {
        int[] total = { words.length };
        Shape shape = new Square();
        Weights weights = new Weights();
        Runnable closure = () -> total[0] += heavy(3000);
        for (int i = 0; i < 60; i++) {
            total[0] += shape.area(3000);
            total[0] += weights.twice(3000);
            total[0] += each(3000);
            closure.run();
        }
        Thread thread = new Thread(() -> {
            for (int i = 0; i < 60; i++) {
                total[0] += heavy(3000);
            }
        });
        thread.start();
        thread.join();
        System.out.println(total[0]);
    }
}
