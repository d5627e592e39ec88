# Where ranks meet that a test starts: a rendezvous that outlives each of them, as that of cairn launch.
# shellcheck shell=bash disable=SC2034,SC2154 # met_at, token: for the ranks; $work, $hang_limit: lib.sh

# serve_rendezvous RANKS [ADDRESS]: sets $met_at and $token, for CAIRN_RENDEZVOUS and CAIRN_JOB_TOKEN
served=0
serve_rendezvous() {
    token=$BASHPID-$((++served))
    local file=$work/.rendezvous$token
    CAIRN_JOB_TOKEN=$token "${CAIRN_TEST_BUILD_DIR:-$source_dir/build}/tests/fakes/rendezvous_server" "$1" "$file" &
    disown # it ends with this shell
    wait_until "$hang_limit" test -s "$file" || complain "no rendezvous for the ranks"
    met_at=served://${2:-127.0.0.1}:$(<"$file")
}
