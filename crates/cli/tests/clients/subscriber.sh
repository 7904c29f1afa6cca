#!/bin/bash
# subscriber.sh MOUNT: aligns each new file of MOUNT/reads against MOUNT/index, once, into MOUNT/aligned, until it is
# killed.
while true; do
  for reads in "$1"/reads/*.fq; do
    [ -e "$reads" ] || continue # no file matches the pattern
    aligned=$1/aligned/$(basename "$reads" .fq).sam
    [ -e "$aligned" ] || bowtie2 --quiet -x "$1/index/lambda" -U "$reads" -S "$aligned"
  done
  sleep 0.1
done
