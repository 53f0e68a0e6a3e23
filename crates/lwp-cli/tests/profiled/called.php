<?php
/* Calls of functions by all ways there are. Each counts itself, where a count is asked for. */
$counts = [];

function leaf($n)
{
    global $counts;
    $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
    return $n + 1;
}

function fib($n)
{
    global $counts;
    $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
    return $n < 2 ? $n : fib($n - 1) + fib($n - 2);
}

function any(...$all)
{
    global $counts;
    $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
    return count($all);
}

function fails($n)
{
    global $counts;
    $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
    if ($n % 2)
        throw new Exception('odd');
    return $n;
}

function values($n)
{
    for ($at = 0; $at < $n; $at++)
        yield $at;
}

class Thing
{
    public $value;

    function __construct($value)
    {
        global $counts;
        $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
        $this->value = $value;
    }

    function __destruct()
    {
        global $counts;
        $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
    }

    function __get($name)
    {
        global $counts;
        $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
        return 1;
    }

    function __call($name, $arguments)
    {
        return 1;
    }

    function area($n)
    {
        global $counts;
        $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
        return leaf($n);
    }

    static function twice($n)
    {
        global $counts;
        $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
        return leaf($n) + leaf($n);
    }
}

class Other extends Thing
{
    function area($n)
    {
        global $counts;
        $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
        return parent::area($n) + $this->absent($n);
    }
}

function ending()
{
    global $counts, $asked;
    $counts[__METHOD__] = ($counts[__METHOD__] ?? 0) + 1;
    if (!$asked)
        return;
    foreach ($counts as $name => $count)
        echo $name, ' ', $count, "\n";
}

function main()
{
    $total = 0;
    for ($round = 0; $round < 300; $round++) {
        $total += leaf($round) + any($round, 1) + call_user_func('leaf', 1);
        $thing = $round % 3 ? new Thing($round) : new Other($round);
        $total += $thing->area(1) + Thing::twice(2) + $thing->missing + $thing->absent(1);
        $name = 'area';
        $total += $thing->$name(2) + call_user_func([$thing, 'area'], 1);
        $total += array_sum(array_map('leaf', [1, 2, 3]));
        try {
            $total += fails($round);
        } catch (Exception $odd) {
            $total--;
        }
        /* Functions that lie where others did. */
        if ($round % 2)
            $made = function ($n) { return leaf($n); };
        else
            $made = fn($n) => leaf($n) + 1;
        $total += $made(1) + array_sum(array_map($made, [1, 2]));
        unset($made);
        if ($round % 50 == 0) {
            eval("function made$round(\$n) { return leaf(\$n); }");
            $total += "made$round"(1) + ("made$round")(2);
            foreach (values(5) as $value)
                $total += $value;
        }
    }
    return $total + fib(16);
}

$asked = ($_SERVER['argv'][1] ?? '') == 'count';
register_shutdown_function('ending');
$total = main();
if (!$asked)
    echo $total, "\n";
