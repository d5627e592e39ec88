#!/usr/bin/env bash
# docs/walkthroughs: runs each page as it stands. curl and unzip are stand-ins: what they bring is a tiny BERT and the
# bundled sample of MNLI.
set -euo pipefail
# shellcheck source=tests/dist/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/../dist/lib.sh"
# shellcheck source=tests/scripts/page.sh
source "$source_dir/tests/scripts/page.sh"
needs_modules
export PATH="$work/bin:${CAIRN_BINARY%/*}:$PATH" src=$source_dir CAIRN_THREADS=1

# The BERT that stands for the models of others: a Hugging Face folder, whose vocabulary has the words of all pages.
mkdir bin tiny mnli
"$CAIRN_BINARY" vocab --input "$sample/train.tsv,$sample/tickets.csv" --size 600 --output tiny/vocab.txt 2>/dev/null
make_tiny_config tiny/config.json "$(wc -l <tiny/vocab.txt)"
for split in train dev_matched dev_mismatched; do head -n 481 "$sample/$split.tsv" >mnli/$split.tsv; done
expect 0 "$CAIRN_BINARY" glue --model-config tiny/config.json --vocab tiny/vocab.txt --data-dir mnli --do-train --max-steps 1 --output-dir seed
expect 0 "$CAIRN_BINARY" convert --model seed --output bert
cat >bin/curl <<END
#!/usr/bin/env bash
# curl -fLO URL, or -fL -o FILE URL: a file of the tiny BERT, or an archive by name.
url=\${@: -1} file=\${url##*/}
[ "\$2" != -o ] || file=\$3
case \$url in
https://huggingface.co/*/resolve/main/*) cp "$work/bert/\${url##*/}" "\$file" ;;
https://*.zip) echo "\${url##*/}" >"\$file" ;;
*) echo "curl: \$url is not known to the test" >&2 && exit 22 ;;
esac
END
cat >bin/unzip <<END
#!/usr/bin/env bash
# unzip -q FILE.zip: the folder that the real archive has.
case \$(cat "\$2") in
MNLI.zip) cp -r "$work/mnli" MNLI ;;
wwm_uncased_L-24_H-1024_A-16.zip) cp -r "$work/bert" wwm_uncased_L-24_H-1024_A-16 ;;
*) exit 9 ;;
esac
END
chmod +x bin/*

# Each page in a folder of its own, with the scripts where its reader has them.
walk() {
    cp -r "$scripts" .
    try_page "$source_dir/docs/walkthroughs/$1.md"
}
pages=0
for page in "$source_dir"/docs/walkthroughs/*.md; do
    beside walk "$(basename "$page" .md)"
    pages=$((pages + 1))
done
together
[ "$pages" -ge 4 ] || complain "docs/walkthroughs has $pages pages"
finish
