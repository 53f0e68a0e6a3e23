#!/bin/sh
# A step of the action: sends the recordings, which are tagged with their benchmarks' names, to a fleet. A server gets
# facts, by curl; a directory or a bucket is written by lwp-fleet, which must be beside lwp or on the path. Below a pull
# request's verdict stands the comparison with the nearest ancestor that the fleet has.
#
# The gate's verdict does not hang on the fleet: each fault is a warning, and the step succeeds.
set -eu

[ -d "$LWP_DIRECTORY/now" ] || exit 0
log=$LWP_DIRECTORY/fleet.log
secret=$LWP_DIRECTORY/curl
answer=$LWP_DIRECTORY/answer

# say KIND TEXT: an annotation, in one line.
say() {
    text=$(printf '%s' "$2" | tr -d '\r' | tr '\n' ' ' | sed 's/%/%25/g; s/ *$//')
    echo "::$1 title=lwp fleet::$text"
}

# give_up TEXT: the end of this step, which fails nothing.
give_up() {
    say warning "nothing was sent to the fleet: $1"
    exit 0
}

# finish CODE: the end, however it comes.
finish() {
    rm -f "$secret" "$log" "$answer" "$LWP_DIRECTORY/facts" "$LWP_DIRECTORY/facts.gz"
    [ "$1" = 0 ] || say warning "the step ended with $1"
    exit 0
}
trap 'finish $?' EXIT

# ask ARGUMENT...: curl with the token, which stands in a file and not in a command line, which everybody on the machine
# sees.
ask() {
    rm -f "$answer"
    curl --silent --show-error --fail-with-body --connect-timeout 20 --max-time 120 --retry 5 --retry-max-time 120 \
        --config "$secret" --output "$answer" "$@" 2> "$log"
}

# The beginning of the answer, and of what curl says.
words() {
    [ ! -f "$answer" ] || head -c 400 "$answer"
    echo
    head -c 400 "$log"
}

send_to_server() {
    [ -n "${LWP_FLEET_TOKEN:-}" ] || give_up "there is no token (pull requests from forks have none)"
    (umask 077 && printf 'header = "Authorization: Bearer %s"\n' "$LWP_FLEET_TOKEN" > "$secret")
    while IFS= read -r file; do
        lwp export -f facts -i "$file" -o "$LWP_DIRECTORY/facts"
        gzip -f "$LWP_DIRECTORY/facts"
        ask --header 'Content-Type: application/x-ndjson' --data-binary "@$LWP_DIRECTORY/facts.gz" \
            "$server/v1/recordings" ||
            give_up "${file##*/now/}: $(words)"
        cat "$answer"
        echo
    done < "$LWP_DIRECTORY/recordings"
}

send_to_store() {
    case $FLEET in
        s3://*)
            # Only a machine of one's own can have credentials that no variable tells of.
            known=${AWS_ACCESS_KEY_ID:-}${AWS_WEB_IDENTITY_TOKEN_FILE:-}
            known=$known${AWS_CONTAINER_CREDENTIALS_RELATIVE_URI:-}${AWS_CONTAINER_CREDENTIALS_FULL_URI:-}
            [ -n "$known" ] || [ "${RUNNER_ENVIRONMENT:-}" = self-hosted ] ||
                give_up "there are no credentials for $FLEET (pull requests from forks have none)"
            ;;
    esac
    set --
    while IFS= read -r file; do
        set -- "$@" "$file"
    done < "$LWP_DIRECTORY/recordings"
    code=0
    timeout 600 lwp fleet add --store "$FLEET" "$@" 2> "$log" || code=$?
    [ "$code" = 0 ] || give_up "$(head -c 800 "$log") (exit code $code)"
    cat "$log"
}

# uncompared TEXT: the reason why nothing stands below the verdict.
uncompared() {
    if [ "$(git rev-parse --is-shallow-repository 2>/dev/null)" = true ]; then
        say warning "nothing is compared: the checkout has no history; give actions/checkout fetch-depth: 0"
    else
        say notice "nothing is compared: $1"
    fi
}

# The ancestors that a change is compared with, nearest first, as `lwp fleet compare base` knows them.
ancestors() {
    from=$(git merge-base HEAD "origin/$BASE_REF" 2>/dev/null) || from=
    if [ -z "$from" ] || [ "$from" = "$(git rev-parse HEAD)" ]; then from=HEAD^; fi
    git rev-list --first-parent --max-count 200 "$from" -- 2>/dev/null || :
}

compare_by_server() {
    ancestors > "$LWP_DIRECTORY/ancestors"
    if [ ! -s "$LWP_DIRECTORY/ancestors" ]; then
        uncompared "git knows no ancestors"
        return
    fi
    {
        printf 'select distinct "commit" from recordings where mode = '\''exact'\'' and "commit" in ('
        sed "s/.*/'&'/" "$LWP_DIRECTORY/ancestors" | paste -s -d , -
        printf ')'
    } > "$LWP_DIRECTORY/question"
    if ! ask --header 'Accept: text/csv' --data-binary "@$LWP_DIRECTORY/question" \
        "$server/v1/sql"; then
        say notice "nothing is compared, which takes a token with --scope read too: $(words)"
        return
    fi
    near=$(grep -F -x -f "$answer" "$LWP_DIRECTORY/ancestors" | head -n 1)
    if [ -z "$near" ]; then
        uncompared "none of the last $(wc -l < "$LWP_DIRECTORY/ancestors") ancestors was recorded"
        return
    fi
    sides="a=$near&b=$(git rev-parse HEAD)"
    if ask --header 'Accept: text/markdown' "$server/v1/compare?$sides" &&
        grep -q '^### lwp' "$answer"; then
        below "$answer"
    else
        say warning "nothing is compared: $(words)"
    fi
}

compare_by_store() {
    if timeout 600 lwp fleet compare base --store "$FLEET" --onto "origin/$BASE_REF" --format markdown \
        > "$answer" 2> "$log"; then
        cat "$log"
        below "$answer"
    else
        uncompared "$(head -c 800 "$log")"
    fi
}

# below FILE: puts a comparison below the verdict.
below() {
    echo >> "$LWP_DIRECTORY/comment.md"
    cat "$1" >> "$LWP_DIRECTORY/comment.md"
}

find "$LWP_DIRECTORY/now" -name '*.data' | sort > "$LWP_DIRECTORY/recordings"
server=${FLEET%/}
case $FLEET in
    http://* | https://*) by=server ;;
    *) by=store ;;
esac
"send_to_$by"
if [ "$EVENT" = pull_request ] && [ -n "${BASE_REF:-}" ]; then
    "compare_by_$by"
fi
