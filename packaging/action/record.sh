#!/bin/sh
# A step of the action: records every benchmark of BENCHMARKS, a line NAME: COMMAND for each, deterministically.
set -eu

rm -rf "$LWP_DIRECTORY/now"
mkdir -p "$LWP_DIRECTORY/now"
count=0
while IFS= read -r line || [ -n "$line" ]; do
    name=$(printf '%s\n' "${line%%:*}" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//')
    case $line in
        *[![:space:]]*) ;;
        *) continue ;;
    esac
    case $line:$name in
        *:*:?*) ;;
        *) echo "::error title=lwp gate::'$line' is no benchmark: write NAME: COMMAND"; exit 1 ;;
    esac
    case /$name/ in
        */../* | //*) echo "::error title=lwp gate::'$name' is no name of a benchmark"; exit 1 ;;
    esac
    file=$LWP_DIRECTORY/now/$name.data
    mkdir -p "$(dirname "$file")"
    echo "recording $name"
    # The words of the command as a shell has them, without a shell in the recording.
    eval "set -- ${line#*:}"
    lwp record -q --deterministic --tag "benchmark=$name" -o "$file" -- "$@" </dev/null >"$LWP_DIRECTORY/output" 2>&1 || {
        code=$?
        cat "$LWP_DIRECTORY/output"
        echo "::error title=lwp gate::$name ended with $code"
        exit "$code"
    }
    count=$((count + 1))
done <<END
$BENCHMARKS
END
if [ "$count" = 0 ]; then
    echo "::error title=lwp gate::there are no benchmarks"
    exit 1
fi
