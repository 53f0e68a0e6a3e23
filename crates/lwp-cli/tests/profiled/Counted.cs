using System;

public class Counted
{
    static int Fib(int n)
    {
        return n < 2 ? n : Fib(n - 1) + Fib(n - 2);
    }

    static int Leaf(int x)
    {
        return x * x;
    }

    static long Middle(int n)
    {
        long total = 0;
        for (int i = 0; i < n; i++)
            total += Leaf(i);
        return total;
    }

    public static void Main()
    {
        long total = 0;
        for (int i = 0; i < 200; i++)
            total += Middle(2000);
        Console.WriteLine(Fib(22) + " " + total);
    }
}
