def light(n)
  total = 0
  i = 0
  while i < n
    total += i & 7
    i += 1
  end
  total
end

def heavy(n)
  total = 0
  i = 0
  n *= 3
  while i < n
    total += i & 7
    i += 1
  end
  total
end

class Shape
  def area(n)
    first = light(n)
    first + heavy(n)
  end
end

def twice(n)
  [n, n].map { |each| light(each) }
end

def worker(n)
  20.times { heavy(n) }
end

def main
  thread = Thread.new { worker(3000) }
  total = 0
  20.times do
    total += Shape.new.area(3000)
    total += twice(3000).sum
    total += [2, 1].max_by { |n| heavy(3000) + n }
  end
  thread.join
  puts total, ARGV.inspect
end

main
