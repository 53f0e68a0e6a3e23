// Loads, compiles and drops classes for so many seconds, and has their code compiled again in between. Each generation has
// a loader of its own, which the next collection unloads, and does the same work. Prints what that comes to, and on the
// standard error how much was done; ends with 1 if a generation comes to something else.
import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.util.Arrays;

public class Churn {
    public interface Work {
        long of(int rounds);

        void load();
    }

    // Each generation has its own of the classes whose names begin like this one's.
    public static class Fresh implements Work {
        FreshStep[] steps = {new FreshStep(), new FreshStep(), new FreshStep(), new FreshStep()};

        // As long as a class has no subclass, compiled code calls its methods directly. This has that code thrown away.
        public void load() {
            steps = new FreshStep[] {new FreshStep(), new FreshOther(), new FreshStep(), new FreshThird()};
        }

        public long of(int rounds) {
            long sum = 0;
            for (int round = 0; round < rounds; round++) sum = sum * 31 + stepped(round) + sorted(round) + named(round);
            return sum;
        }

        int stepped(int sum) {
            for (int at = 0; at < 400; at++) sum = steps[at & 3].of(sum) & 0xffffff;
            return sum;
        }

        int sorted(int from) {
            int[] numbers = new int[32];
            for (int at = 0; at < numbers.length; at++) numbers[at] = (at * 7919 + from) % 211;
            Arrays.sort(numbers);
            return numbers[from & 31] * 5 + numbers[31 - (from & 31)];
        }

        int named(int number) {
            return switch (number % 7) {
                case 0 -> ("key " + number).hashCode();
                case 1 -> Integer.toString(number, 7).length();
                case 2 -> number / 3;
                case 3 -> Integer.bitCount(number);
                default -> number;
            };
        }
    }

    static class FreshStep {
        int of(int number) {
            return number * 3 + 1;
        }
    }

    static class FreshOther extends FreshStep {
        @Override
        int of(int number) {
            return number ^ 0x55aa;
        }
    }

    static class FreshThird extends FreshStep {
        @Override
        int of(int number) {
            return number - 7;
        }
    }

    static class Loader extends ClassLoader {
        Loader() {
            super(Churn.class.getClassLoader());
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            if (!name.startsWith("Churn$Fresh")) return super.loadClass(name, resolve);
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                return loaded != null ? loaded : define(name);
            }
        }

        private Class<?> define(String name) throws ClassNotFoundException {
            try (InputStream file = getResourceAsStream(name + ".class")) {
                byte[] bytes = file.readAllBytes();
                return defineClass(name, bytes, 0, bytes.length);
            } catch (IOException error) {
                throw new ClassNotFoundException(name, error);
            }
        }
    }

    static long generation() throws ReflectiveOperationException {
        Work work = (Work) new Loader().loadClass("Churn$Fresh").getDeclaredConstructor().newInstance();
        long before = work.of(4000);
        work.load();
        return before * 31 + work.of(4000);
    }

    public static void main(String[] arguments) throws ReflectiveOperationException {
        long end = System.nanoTime() + Long.parseLong(arguments[0]) * 1_000_000_000L;
        long first = generation();
        int generations = 1;
        for (; System.nanoTime() < end; generations++) {
            long sum = generation();
            if (sum != first) {
                System.out.println("generation " + generations + ": " + sum + ", not " + first);
                System.exit(1);
            }
            if (generations % 64 == 0) System.gc();
        }
        System.out.println(first);
        System.err.println(generations + " generations, " + ManagementFactory.getClassLoadingMXBean().getUnloadedClassCount()
            + " classes unloaded, " + ManagementFactory.getCompilationMXBean().getTotalCompilationTime() / 1000
            + " s of compiling");
    }
}
