// Recursion, objects, interface calls, strings and a dictionary. Prints a sum, and the microseconds
// of the second half of the rounds.
using System;
using System.Collections.Generic;
using System.Diagnostics;

interface IStep
{
    int Of(int number);
}

class Add : IStep
{
    public int Of(int number) { return number + 1; }
}

class Triple : IStep
{
    public int Of(int number) { return number * 3 & 0xffffff; }
}

class Flip : IStep
{
    public int Of(int number) { return number ^ 7; }
}

class Point
{
    public readonly int X, Y;

    public Point(int x, int y) { X = x; Y = y; }

    public Point Plus(Point other) { return new Point(X + other.X, Y ^ other.Y); }
}

static class Numbers
{
    const int Rounds = 16;
    static readonly IStep[] Steps = { new Add(), new Triple(), new Flip() };

    static int Fibonacci(int n)
    {
        return n < 2 ? n : Fibonacci(n - 1) + Fibonacci(n - 2);
    }

    static int Round(int number)
    {
        int sum = Fibonacci(29);
        var point = new Point(0, 0);
        for (int at = 0; at < 2000000; at++) point = point.Plus(new Point(at & 3, at));
        sum += point.X + point.Y;
        for (int at = 0; at < 4000000; at++) sum = Steps[at % 3].Of(sum) & 0xffffff;
        var counts = new Dictionary<string, int>();
        for (int at = 0; at < 100000; at++)
        {
            string key = "key " + ((at * 7 + number) % 4000).ToString();
            int count;
            counts.TryGetValue(key, out count);
            counts[key] = count + at;
        }
        foreach (int value in counts.Values) sum = sum + value & 0xffffff;
        return sum;
    }

    static void Main()
    {
        int sum = 0;
        long begun = 0;
        for (int number = 0; number < Rounds; number++)
        {
            if (number == Rounds / 2) begun = Stopwatch.GetTimestamp();
            sum = sum * 31 + Round(number) & 0xffffff;
        }
        Console.WriteLine(sum);
        Console.WriteLine((Stopwatch.GetTimestamp() - begun) / (Stopwatch.Frequency / 1000000));
    }
}
