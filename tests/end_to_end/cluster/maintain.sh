#!/bin/sh
# The platform's program. It writes its own log, with the true time: maintain.sh LOG SECONDS.
unset LD_PRELOAD
log=$1
work="$FOREWARN_SCOPE $FOREWARN_VM $FOREWARN_EVENT_ID"
line() {
    echo "$(date +%s.%N) $1 $FOREWARN_HOST $work $FOREWARN_ATTEMPT" >> "$log"
}
next_host() {
    # A redeployed VM moves on to the next host.
    [ "$FOREWARN_EVENT_TYPE" = Redeploy ] || return 0
    case $FOREWARN_HOST in
    hv-0) echo hv-1 ;;
    hv-1) echo hv-2 ;;
    *) echo hv-0 ;;
    esac
}
case $FOREWARN_PHASE in
carry-out)
    line begin
    sleep "$2"
    line end
    next_host
    ;;
probe)
    if grep -q " end .* $work " "$log"; then
        next_host
    elif grep -q " begin .* $work " "$log"; then
        exit 1
    else
        exit 75
    fi
    ;;
esac
