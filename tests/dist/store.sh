# Where ranks meet that a test starts: a store that outlives each of them, as that of cairn launch.
# shellcheck shell=bash disable=SC2034,SC2154 # met_at, token: for the ranks; $work, $hang_limit: lib.sh

# serve_store RANKS [ADDRESS]: sets $met_at and $token, for CAIRN_RENDEZVOUS and CAIRN_JOB_TOKEN
stores=0
serve_store() {
    token=$BASHPID-$((++stores))
    local file=$work/.store$token
    CAIRN_JOB_TOKEN=$token "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/tests/fakes/store_server" "$1" "$file" &
    disown # it ends with this shell
    wait_until "$hang_limit" test -s "$file" || complain "no store for ranks to meet"
    met_at=served://${2:-127.0.0.1}:$(<"$file")
}
