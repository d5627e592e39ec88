#!/usr/bin/env bash
# `cairn wiki` as a user runs it: the sample, the real dump if it exists, stop and resume, wrong use.
set -euo pipefail
# shellcheck source=tests/scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

wiki=$source_dir/tasks/pretrain/sample/sample.xml
expect 0 "$CAIRN_BINARY" wiki --help
says --input --output-dir --threads --part-size --max-article --text-form

# -- the sample, and a vocabulary of it, without the manifest's words
expect 0 "$CAIRN_BINARY" wiki --input "$wiki" --output-dir text
if grep -q 'built without expat' <<<"$output"; then echo "skipped: built without expat" && exit 77; fi
says "280 articles" "2520 sentences" "9 redirects"
has_file text/part-00000.txt text/manifest.json
expect 0 "$CAIRN_BINARY" vocab --input text --size 800 --output vocab.txt
expect 1 "$CAIRN_BINARY" shards --input "$wiki" --vocab vocab.txt --output-dir "shards of a dump"
says "found a file that is a dump of a wiki (XML); \`cairn wiki --input"
expect 1 "$CAIRN_BINARY" vocab --input "$wiki" --output dump.txt
says "a dump of a wiki"
printf 'BZh91AY&SY' >packed.txt
expect 1 "$CAIRN_BINARY" vocab --input packed.txt --output dump.txt
says "packed by bz2"
{ printf '\357\273\277 \n\t' && cat "$wiki"; } >marked.xml
expect 1 "$CAIRN_BINARY" vocab --input marked.xml --output dump.txt
says "found a file that is a dump of a wiki (XML)"
expect 0 "$CAIRN_BINARY" wiki --input marked.xml --output-dir "marked text"
cmp text/part-00000.txt "marked text/part-00000.txt" || complain "a byte order mark and blanks change the text"
grep -v '<ns>' "$wiki" >old.xml # export-0.3 to 0.5
expect 0 "$CAIRN_BINARY" wiki --input old.xml --output-dir "old text"
says "4 pages of other namespaces"
cmp text/part-00000.txt "old text/part-00000.txt" || complain "without <ns> the text is another"
if grep -q 'have no <ns>' <<<"$output"; then complain "warned of names that the header has"; fi
sed -n '/<page>/,$p' old.xml >bare.xml
expect 0 "$CAIRN_BINARY" wiki --input bare.xml --output-dir "bare text"
says "bare.xml: pages have no <ns>" "English prefixes" "4 pages of other namespaces"
cmp text/part-00000.txt "bare text/part-00000.txt" || complain "without a header the text is another"
printf 'text\n"A table in quotes, as of CSV."\n' >quoted.tsv
expect 0 "$CAIRN_BINARY" wiki --input quoted.tsv --output-dir "quoted text"
says "quoted.tsv: 1 of 1 rows have a column in quotes"
{ printf ' \n<?xml version="1.0"?>\n<feed>' && cat vocab.txt; } >feed.txt
expect 1 "$CAIRN_BINARY" vocab --input feed.txt --output dump.txt
says "found a file that is XML, but no dump of a wiki; give its text alone"
expect 1 "$CAIRN_BINARY" wiki --input feed.txt --output-dir feed
says "XML, but not a MediaWiki dump"
printf '7z\274\257' >archive.txt
expect 1 "$CAIRN_BINARY" shards --input archive.txt --vocab vocab.txt --output-dir archive
says "packed by 7z; unpack it first"
expect 1 "$CAIRN_BINARY" wiki --input archive.txt --output-dir archive
says "packed by 7z, which is not supported"
printf 'BZhe is a name.\n<?xml is no XML.\n' >begins.txt # no dump, nor packed
expect 0 "$CAIRN_BINARY" vocab --input begins.txt --size 100 --output dump.txt
printf '<?xml begins XML.\n' >begins.txt
expect 0 "$CAIRN_BINARY" vocab --input begins.txt --size 100 --output dump.txt
has_file vocab.txt
if grep -q 'xxh' vocab.txt; then complain "the manifest was read as text"; fi
expect 0 "$CAIRN_BINARY" wiki --input "$wiki" --output-dir text
says "finished before"

# -- wrong use
expect 2 "$CAIRN_BINARY" wiki --output-dir text
says --input
expect 2 "$CAIRN_BINARY" wiki --input "$wiki"
says --output-dir
expect 2 "$CAIRN_BINARY" wiki --input "$wiki" --output-dir text --part-size 2MB
says "other options"
expect 2 "$CAIRN_BINARY" wiki --input "$wiki" --output-dir x --max-article 12B
expect 2 "$CAIRN_BINARY" wiki --input "$wiki" --output-dir x --text-form lines
expect 1 "$CAIRN_BINARY" wiki --input nowhere.xml --output-dir x
says nowhere.xml
mkdir empty
expect 1 "$CAIRN_BINARY" wiki --input empty --output-dir x
says "empty folder"
expect 1 "$CAIRN_BINARY" wiki --input "$source_dir/LICENSE" --output-dir /dev/null/x
says /dev/null

# -- SIGTERM: 75, and the rest with the same command, to the same bytes
awk '/<page>/ {pages = 1} !pages {print} pages && !/<\/mediawiki>/ {body = body $0 "\n"}
     END {for (i = 0; i < 24; i++) printf "%s", body; print "</mediawiki>"}' "$wiki" >large.xml
run=("$CAIRN_BINARY" wiki --input large.xml --part-size 500KB)
expect 0 "${run[@]}" --output-dir whole --threads 1
for piece in 5 3 1; do # MiB of the dump
    CAIRN_TEST_AT=piece-$piece=term expect 75 "${run[@]}" --output-dir halted --threads $((7 - piece))
    says "run the same command again"
done
expect 0 "${run[@]}" --output-dir halted
cmp <(cat whole/part-*) <(cat halted/part-*) || complain "stopped three times, the text differs"
if compgen -G 'halted/*.tmp.*' >/dev/null; then complain "temporaries are left: $(ls halted)"; fi

# -- a vocabulary of this text by one core and by all; a thread counts 1 MiB at least
for ((i = 0; i < 6; i++)); do cat whole/part-*; done >large.txt
expect 0 "$CAIRN_BINARY" vocab --input large.txt --output all.vocab --size 2000
if command -v taskset >/dev/null && taskset -c 0 true 2>/dev/null; then
    expect 0 taskset -c 0 "$CAIRN_BINARY" vocab --input large.txt --output one.vocab --size 2000
    cmp all.vocab one.vocab || complain "the vocabulary depends on the number of cores"
fi

# -- two at once on one folder
if command -v flock >/dev/null; then
    mkdir -p locked && touch locked/.lock
    CAIRN_TEST_LOCK_WAIT=0.1 expect 1 flock locked/.lock "$CAIRN_BINARY" wiki --input "$wiki" --output-dir locked
    says locked
fi

# -- the real dump
dump=$(find "${CAIRN_TEST_DATA:-$source_dir/../shared/data}/wikipedia" -name 'enwiki*.bz2' 2>/dev/null | head -n 1 || true)
if [ -z "$dump" ] || ! "$CAIRN_BINARY" wiki --input "$dump" --output-dir real 2>notes; then
    if [ -z "$dump" ]; then
        echo "skipped: no real dump"
    elif grep -q 'built without libbz2' notes; then
        echo "skipped: built without libbz2"
    else
        complain "the real dump: $(cat notes)"
    fi
    finish
fi
for number in '"pages": 206' '"redirects": 99' '"other_namespaces": 1' '"articles": 105' '"broken": 0' '"lost": 0'; do
    grep -q "$number" real/manifest.json || complain "not $number: $(grep counts real/manifest.json)"
done
lines=$(grep -c . real/part-00000.txt)
[ "$lines" -gt 15000 ] || complain "only $lines sentences"
# A ratchet: these counts may sink, not rise. One of the two pages writes of the bar as a character.
with_markup=$(json_number real/manifest.json with_markup)
[ "$with_markup" -le 2 ] || complain "$with_markup articles have something like markup in them"
grep -qE 'such as, or|temperature of 50 to\.|such as\.' real/part-00000.txt && complain "sentences have gaps"
# At most one line of 2000 has remains of markup.
residue=$(grep -cE "\[\[|\]\]|\{\{|\}\}|<ref|</|''|&(nbsp|ndash|mdash|amp|lt|gt|quot);|\[https?:|==|^[|!*#:]|\|thumb" real/part-00000.txt || true)
[ $((residue * 2000)) -le "$lines" ] || complain "$residue of $lines lines have markup in them"
echo "real dump: $lines sentences, $residue with something like markup"
finish
