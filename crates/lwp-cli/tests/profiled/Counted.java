public class Counted {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    static long leaf(int x) { long s = 0; for (int i = 0; i < 2000; i++) s += i ^ x; return s; }
    static long middle(int n) { long t = 0; for (int i = 0; i < n; i++) t += leaf(i); return t; }
    public static void main(String[] words) {
        System.out.println(fib(20) + middle(5000) + words.length);
    }
}
