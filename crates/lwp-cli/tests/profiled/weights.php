<?php
function light($n)
{
    $total = 0;
    for ($i = 0; $i < $n; $i++)
        $total += $i & 7;
    return $total;
}

function heavy($n)
{
    $total = 0;
    $n *= 3;
    for ($i = 0; $i < $n; $i++)
        $total += $i & 7;
    return $total;
}

class Shape
{
    function area($n)
    {
        $first = light($n);
        return $first + heavy($n);
    }

    static function twice($n)
    {
        return array_sum(array_map('light', [$n, $n]));
    }
}

function each($n)
{
    for ($i = 0; $i < 3; $i++)
        yield light($n);
}

function main()
{
    $total = 0;
    for ($round = 0; $round < 20; $round++) {
        $shape = new Shape();
        $total += $shape->area(3000);
        $total += Shape::twice(3000);
        foreach (each(3000) as $value)
            $total += $value;
        $all = [2, 1];
        usort($all, function ($a, $b) { return heavy(3000) > 0 ? $a - $b : 0; });
        $total += $all[0];
    }
    echo $total, ' ', count($_SERVER['argv']), "\n";
}

main();
