#!/bin/bash
# subscriber.sh MOUNT: aligns what comes into MOUNT/reads against MOUNT/index, each file once, into MOUNT/aligned, until it is ended.
while true; do
  for reads in "$1"/reads/*.fq; do
    [ -e "$reads" ] || continue # the pattern itself: there is none
    aligned=$1/aligned/$(basename "$reads" .fq).sam
    [ -e "$aligned" ] || bowtie2 --quiet -x "$1/index/lambda" -U "$reads" -S "$aligned"
  done
  sleep 0.1
done
