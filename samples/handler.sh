#!/usr/bin/env bash
# Lists the events that this VM is told of, and approves those that affect it. Needs curl and jq.
set -euo pipefail

endpoint=${FOREWARN_ENDPOINT:-http://169.254.169.254}
events="$endpoint/metadata/scheduledevents?api-version=2020-07-01"
# An event that was approved may have to wait for other VMs: once is enough.
approved=''

# Sends a GET, or a POST with --data. A proxy would ask about itself, so there is none; and the first answer of the day
# can take two minutes.
ask() {
    curl --silent --show-error --fail --noproxy '*' --max-time 130 --header 'Metadata: true' "$@"
}

# Does something with the document. `mine` tells whether an event affects this VM; the first version of the protocol puts
# an underscore before the names.
query() {
    jq --raw-output --compact-output --arg name "${name#_}" --arg approved "$approved" \
        'def mine: any(.Resources[]; ltrimstr("_") == $name); '"$1" <<<"$document"
}

# Lists the events, and approves those that wait for this VM.
look() {
    local name document waiting ids
    name=$(ask "$endpoint/metadata/instance/compute/name?api-version=2020-09-01&format=text") || return
    document=$(ask "$events") || return
    # The body is empty as long as the service has not begun to watch over this VM.
    document=${document:-'{"Events":[]}'}

    query '.Events[] | "\(.EventId) \(.EventStatus) \(.EventType) \(if mine then "this VM" else "others" end)"' || return

    waiting='.Events[] | select(mine and .EventStatus == "Scheduled") | .EventId | select(inside($approved) | not)'
    ids=$(query "$waiting") || return
    if [ -n "$ids" ]; then
        # Here is the place to bring everything to safety: after the approval the events start.
        ask --data "$(query "{StartRequests: [$waiting | {EventId: .}]}")" "$events" || return
        query "$waiting | \"approved \(.)\""
        approved+=" $ids"
    fi
}

# Looks every second, or once.
if [ "${1:-}" = once ]; then
    look
    exit
fi
while :; do
    look || echo 'no valid answer, asking again' >&2
    sleep 1
done
