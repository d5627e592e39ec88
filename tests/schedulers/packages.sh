# Debian packages for a test that needs their programs, unpacked into the build folder and mounted over /usr in the test's
# mount namespace. Nothing is installed, and no service is started.
# shellcheck shell=bash

# fetch_packages FOLDER PACKAGE...: unpacks them into FOLDER/root. False if they cannot be fetched.
fetch_packages() {
    local folder=$1 package part
    shift
    [ ! -e "$folder/done" ] || return 0
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || return 1
    rm -rf -- "$folder"
    mkdir -p "$folder/debs" "$folder/root/usr"
    (cd -- "$folder/debs" && timeout 120 apt-get download "$@") >/dev/null 2>&1 || return 1
    for package in "$folder"/debs/*.deb; do dpkg -x "$package" "$folder/root" || return 1; done
    for part in lib sbin bin; do # /lib is /usr/lib by now
        if [ -d "$folder/root/$part" ]; then cp -a "$folder/root/$part" "$folder/root/usr/"; fi
    done
    touch "$folder/done"
}

# not_installed PACKAGE...: prints those that are not installed.
not_installed() {
    local package
    for package in "$@"; do dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' || echo "$package"; done
}

# missing_libraries FOLDER PROGRAM...: prints the libraries of these programs that neither the system nor FOLDER/root/usr has.
missing_libraries() {
    local folder=$1 libraries
    shift
    libraries=$(find "$folder/root/usr/lib" -name '*.so*' -printf '%h\n' | sort -u | paste -sd:)
    (cd -- "$folder/root/usr" && LD_LIBRARY_PATH=$libraries ldd "$@") | grep 'not found' | sort -u
}

# overlay_packages FOLDER: inside the test's namespaces (within_hosts). Ends the test with 77 (skipped) if that is not allowed.
overlay_packages() {
    local link
    link=/run/netns/over-$(basename -- "$1")
    ln -s "$1/root/usr" "$link" # a path without a space or a colon
    mount -t overlay overlay -o "lowerdir=$link:/usr" /usr && return
    echo "skipped: no overlay can be mounted here, and the scheduler is not installed"
    exit 77
}
