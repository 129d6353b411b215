// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

func main() {
	most := flag.Int("max", 3, "most tests that may pass only when they run again")
	checked := flag.Bool("check", false, "check the files of runs that ended well, and be silent otherwise")
	flag.Parse()
	var err error
	switch {
	case *checked && flag.NArg() > 0:
		err = check(flag.Args())
	case !*checked && flag.NArg() == 1:
		err = report(os.Stdout, flag.Arg(0), *most)
	default:
		fmt.Fprintln(os.Stderr, "usage: flaky [-max N] FOLDER, or flaky -check FILE…")
		flag.PrintDefaults()
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "flaky:", err)
		os.Exit(1)
	}
}

// check is an error if a run that ended well should not have.
func check(files []string) error {
	var found []string
	for _, file := range files {
		h, err := readFile(file)
		if err != nil {
			return err
		}
		found = append(found, h.unforgiven()...)
	}
	if len(found) > 0 {
		return errors.New("not made good by running again:\n\t" + strings.Join(found, "\n\t"))
	}
	return nil
}

// report prints the flakes of all files in a folder, and keeps their output there.
func report(to io.Writer, folder string, most int) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return err
	}
	logs := map[string]bool{}
	n := 0
	for _, file := range files {
		h, err := readFile(file)
		if err != nil {
			return err
		}
		for _, f := range h.flakes() {
			n++
			log := filepath.Join(folder, logName(f, logs))
			if err := os.WriteFile(log, []byte(f.output), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(to, "FLAKY %d: %s.%s (%d of %d runs failed; first output in %s)\n", n, f.pkg, f.test, f.failed, f.runs, log)
		}
	}
	if n > most {
		return fmt.Errorf("%d tests passed only when they ran again, at most %d may", n, most)
	}
	return nil
}

func readFile(file string) (*history, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readHistory(file, f)
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// logName is the name of a file for the output of a test, which no other has:
// a test may be flaky in two runs, and long names are cut.
func logName(f flake, taken map[string]bool) string {
	base := notInNames.ReplaceAllString(f.pkg+"."+f.test, "_")
	base = base[:min(len(base), 200)]
	name := base + ".log"
	for i := 2; taken[name]; i++ {
		name = fmt.Sprintf("%s-%d.log", base, i)
	}
	taken[name] = true
	return name
}
