// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	root := flag.String("root", ".", "folder of the project")
	only := flag.String("only", "", "regular expression: plant only defects whose description matches")
	flag.Parse()
	if err := run(os.Stdout, *root, *only, defects); err != nil {
		fmt.Fprintln(os.Stderr, "defects:", err)
		os.Exit(1)
	}
}

// run plants all defects whose description matches, and returns those that no test noticed.
func run(to io.Writer, root, only string, all []defect) error {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	root, err = filepath.Abs(root)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		if !wanted.MatchString(d.what) {
			continue
		}
		began := time.Now()
		if err := d.noticed(root); err != nil {
			fmt.Fprintf(to, "MISSED   %s\n", d.what)
			errs = append(errs, fmt.Errorf("%s: %w", d.what, err))
			continue
		}
		fmt.Fprintf(to, "noticed  %s: %s %s, %s\n", d.what, filepath.Join(d.module, d.pkg), d.test, time.Since(began).Round(time.Second))
	}
	return errors.Join(errs...)
}

// defect is a change of one file, and the test that has to fail with it.
type defect struct {
	what     string
	file     string // from the root
	old, new string // old is there once
	module   string // folder of the module of the test, from the root
	pkg      string // of the test, from the module
	test     string // for go test -run
}

// noticed is nil if the test fails with the defect.
func (d defect) noticed(root string) error {
	overlay, remove, err := d.plant(root)
	if err != nil {
		return err
	}
	defer remove()
	cmd := exec.Command("go", "test", "-vet=off", "-count=1", "-run", d.test, "./"+d.pkg)
	cmd.Dir = filepath.Join(root, d.module)
	// Programs that the test builds have the defect, too.
	cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -overlay="+overlay)
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return fmt.Errorf("%s passes with the defect", d.test)
	case bytes.Contains(out, []byte("[build failed]")) || bytes.Contains(out, []byte("[setup failed]")):
		return fmt.Errorf("the defect cannot be compiled:\n%s", out)
	case !bytes.Contains(out, []byte("--- FAIL: ")):
		return fmt.Errorf("no test has failed, but %w:\n%s", err, out)
	}
	return nil
}

// plant writes the changed file and the overlay that puts it in the place of the file.
func (d defect) plant(root string) (overlay string, remove func(), err error) {
	file := filepath.Join(root, d.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return "", nil, err
	}
	if n := strings.Count(string(text), d.old); n != 1 {
		return "", nil, fmt.Errorf("%s has the code that the defect changes %d times, want once: follow the product in list.go:\n%s", d.file, n, d.old)
	}
	dir, err := os.MkdirTemp("", "defect")
	if err != nil {
		return "", nil, err
	}
	remove = func() { os.RemoveAll(dir) }
	changed := filepath.Join(dir, filepath.Base(file))
	overlay = filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: changed}})
	err = errors.Join(err,
		os.WriteFile(changed, []byte(strings.Replace(string(text), d.old, d.new, 1)), 0o600),
		os.WriteFile(overlay, replace, 0o600))
	if err != nil {
		remove()
		return "", nil, err
	}
	return overlay, remove, nil
}
