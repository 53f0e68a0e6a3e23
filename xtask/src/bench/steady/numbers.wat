;; Recursion, points in memory, indirect calls, decimal keys and a hash table of counts. The driver
;; calls `round` and has the clock.
(module
  (type $step (func (param i32) (result i32)))
  ;; 0: points, 16 KiB. 16 KiB: a key, 32 bytes. 64 KiB: the table, 8,192 entries of 8 bytes.
  (memory 2)
  (table 3 funcref)
  (elem (i32.const 0) $add $triple $flip)

  (func $add (type $step) (i32.add (local.get 0) (i32.const 1)))
  (func $triple (type $step)
    (i32.and (i32.mul (local.get 0) (i32.const 3)) (i32.const 0xffffff)))
  (func $flip (type $step) (i32.xor (local.get 0) (i32.const 7)))

  (func $fibonacci (param $n i32) (result i32)
    (if (result i32) (i32.lt_u (local.get $n) (i32.const 2))
      (then (local.get $n))
      (else (i32.add
        (call $fibonacci (i32.sub (local.get $n) (i32.const 1)))
        (call $fibonacci (i32.sub (local.get $n) (i32.const 2)))))))

  ;; Each point is the sum of the one before it and another; the places go round.
  (func $points (result i32)
    (local $at i32) (local $from i32) (local $to i32)
    (i64.store (i32.const 0) (i64.const 0))
    (loop $next
      (local.set $to
        (i32.and (i32.add (local.get $from) (i32.const 8)) (i32.const 0x3fff)))
      (i32.store (local.get $to)
        (i32.add (i32.load (local.get $from)) (i32.and (local.get $at) (i32.const 3))))
      (i32.store offset=4 (local.get $to)
        (i32.xor (i32.load offset=4 (local.get $from)) (local.get $at)))
      (local.set $from (local.get $to))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 6000000))))
    (i32.add (i32.load (local.get $from)) (i32.load offset=4 (local.get $from))))

  (func $steps (param $sum i32) (result i32)
    (local $at i32)
    (loop $next
      (local.set $sum
        (i32.and
          (call_indirect (type $step)
            (local.get $sum) (i32.rem_u (local.get $at) (i32.const 3)))
          (i32.const 0xffffff)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 6000000))))
    (local.get $sum))

  ;; Writes a number in decimal digits, the last one first, and returns their FNV-1a hash.
  (func $hash (param $number i32) (result i32)
    (local $place i32) (local $end i32) (local $hash i32)
    (local.set $end (i32.const 0x4000))
    (loop $digit
      (i32.store8 (local.get $end)
        (i32.add (i32.const 48) (i32.rem_u (local.get $number) (i32.const 10))))
      (local.set $end (i32.add (local.get $end) (i32.const 1)))
      (local.set $number (i32.div_u (local.get $number) (i32.const 10)))
      (br_if $digit (local.get $number)))
    (local.set $place (i32.const 0x4000))
    (local.set $hash (i32.const 0x811c9dc5))
    (loop $byte
      (local.set $hash
        (i32.mul
          (i32.xor (local.get $hash) (i32.load8_u (local.get $place)))
          (i32.const 0x01000193)))
      (local.set $place (i32.add (local.get $place) (i32.const 1)))
      (br_if $byte (i32.lt_u (local.get $place) (local.get $end))))
    (local.get $hash))

  ;; The entry of a key: its key, plus one, and its count. An empty one has key 0.
  (func $entry (param $key i32) (result i32)
    (local $slot i32) (local $entry i32)
    (local.set $slot (call $hash (local.get $key)))
    (loop $probe
      (local.set $entry
        (i32.add
          (i32.const 0x10000)
          (i32.shl (i32.and (local.get $slot) (i32.const 0x1fff)) (i32.const 3))))
      (if (i32.eqz (i32.load (local.get $entry)))
        (then (i32.store (local.get $entry) (i32.add (local.get $key) (i32.const 1)))))
      (local.set $slot (i32.add (local.get $slot) (i32.const 1)))
      (br_if $probe
        (i32.ne
          (i32.load (local.get $entry))
          (i32.add (local.get $key) (i32.const 1)))))
    (local.get $entry))

  (func $counts (param $number i32) (result i32)
    (local $at i32) (local $entry i32) (local $sum i32)
    (local.set $entry (i32.const 0x10000))
    (loop $clear
      (i64.store (local.get $entry) (i64.const 0))
      (local.set $entry (i32.add (local.get $entry) (i32.const 8)))
      (br_if $clear (i32.lt_u (local.get $entry) (i32.const 0x20000))))
    (loop $next
      (local.set $entry
        (call $entry
          (i32.rem_u
            (i32.add (i32.mul (local.get $at) (i32.const 7)) (local.get $number))
            (i32.const 4000))))
      (i32.store offset=4 (local.get $entry)
        (i32.add (i32.load offset=4 (local.get $entry)) (local.get $at)))
      (local.set $at (i32.add (local.get $at) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $at) (i32.const 600000))))
    (local.set $entry (i32.const 0x10000))
    (loop $value
      (local.set $sum
        (i32.add (local.get $sum) (i32.load offset=4 (local.get $entry))))
      (local.set $entry (i32.add (local.get $entry) (i32.const 8)))
      (br_if $value (i32.lt_u (local.get $entry) (i32.const 0x20000))))
    (local.get $sum))

  (func (export "round") (param $number i32) (result i32)
    (i32.and
      (i32.add
        (call $steps (i32.add (call $fibonacci (i32.const 29)) (call $points)))
        (call $counts (local.get $number)))
      (i32.const 0xffffff))))
