// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	var s source
	var created int64
	flag.StringVar(&s.programs, "programs", "", "`folder` with a folder of programs per platform, such as linux-amd64")
	flag.StringVar(&s.tools, "tools", "", "`folder` of the same kind with programs of others, for looking at an operator; they go into /bin by their own names")
	flag.StringVar(&s.licenses, "licenses", "", "`folder` of licence texts")
	flag.StringVar(&s.version, "version", "devel", "`version` of the programs")
	flag.StringVar(&s.revision, "revision", "", "`commit` that they were built from")
	flag.Int64Var(&created, "created", 0, "age of all files and of the image, in `seconds` since 1970")
	flag.Parse()
	s.created = time.Unix(created, 0).UTC()
	if flag.NArg() != 1 || s.programs == "" || s.tools == "" || s.licenses == "" {
		fmt.Fprintln(os.Stderr, "usage: image -programs FOLDER -tools FOLDER -licenses FOLDER [flags] LAYOUT")
		flag.PrintDefaults()
		os.Exit(2)
	}
	if err := run(s, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// run writes the layout, in the place of what is there, and says what it is.
func run(s source, to string) error {
	index, err := s.index()
	if err != nil {
		return err
	}
	if err := writeLayout(index, s.version, to); err != nil {
		return fmt.Errorf("write the layout %s: %w", to, err)
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Printf("    %s %s\n", s.version, digest)
	return nil
}
