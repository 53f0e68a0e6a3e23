#!/bin/sh
# A step of the action: sends the recordings, which are tagged with their benchmarks' names, to a fleet: a server or a store. To a server they go as
# facts, by curl; for a directory or a bucket there must be lwp-fleet beside lwp. Below a pull request's verdict stands what
# the fleet knows of the nearest ancestor.
set -eu

[ -d "$LWP_DIRECTORY/now" ] || exit 0
find "$LWP_DIRECTORY/now" -name '*.data' | sort > "$LWP_DIRECTORY/recordings"
while IFS= read -r file; do
    case $FLEET in
        http://* | https://*)
            lwp export -f facts -i "$file" -o "$LWP_DIRECTORY/facts"
            gzip -f "$LWP_DIRECTORY/facts"
            # The token stands in a file and not in a command line, which everybody on the machine sees.
            (umask 077 && printf 'header = "Authorization: Bearer %s"\n' "$LWP_FLEET_TOKEN" > "$LWP_DIRECTORY/curl")
            code=0
            curl --silent --show-error --fail-with-body --retry 5 --config "$LWP_DIRECTORY/curl" \
                --header 'Content-Type: application/x-ndjson' --data-binary "@$LWP_DIRECTORY/facts.gz" \
                "${FLEET%/}/v1/recordings" || code=$?
            rm -f "$LWP_DIRECTORY/curl" "$LWP_DIRECTORY/facts.gz"
            [ "$code" = 0 ] || { echo "::error title=lwp fleet::$file was not sent"; exit 1; }
            echo
            ;;
        *) lwp fleet add --store "$FLEET" "$file" ;;
    esac
done < "$LWP_DIRECTORY/recordings"
case $FLEET in
    http://* | https://*) ;;
    *)
        if [ "$EVENT" = pull_request ] && [ -n "${BASE_REF:-}" ]; then
            # Nothing to compare with is no fault: the first pull request comes before the first recording.
            lwp fleet compare base --store "$FLEET" --onto "origin/$BASE_REF" --format markdown \
                > "$LWP_DIRECTORY/fleet.md" || rm -f "$LWP_DIRECTORY/fleet.md"
            [ ! -f "$LWP_DIRECTORY/fleet.md" ] || { echo; cat "$LWP_DIRECTORY/fleet.md"; } >> "$LWP_DIRECTORY/comment.md"
        fi
        ;;
esac
