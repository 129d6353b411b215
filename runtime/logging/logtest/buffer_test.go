// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package logtest_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/runtime/logging/logtest"
)

func TestBufferKeepsWholeWritesOfManyWriters(t *testing.T) {
	var b logtest.Buffer
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 100 {
				fmt.Fprintln(&b, "writer", i)
				_ = b.String()
			}
		})
	}
	all.Wait()
	if n := len(b.Lines()); n != 800 {
		t.Errorf("%d lines", n)
	}
	for i := range 8 {
		if n := b.Count(fmt.Sprint("writer ", i)); n != 100 {
			t.Errorf("%d lines of writer %d", n, i)
		}
	}
}

func TestAfterIsWhatWasNotReadYet(t *testing.T) {
	var b logtest.Buffer
	b.Write([]byte("one\n"))
	read := len(b.After(0))
	if rest := b.After(read); rest != "" {
		t.Errorf("%q, and nothing was written", rest)
	}
	b.Write([]byte("two\n"))
	if rest := b.After(read); rest != "two\n" {
		t.Errorf("%q, want the second line alone", rest)
	}
}

func TestLinesAndCount(t *testing.T) {
	var b logtest.Buffer
	if len(b.Lines()) != 0 || b.Count() != 0 {
		t.Errorf("an empty log has %q", b.Lines())
	}
	b.Write([]byte("level=info msg=\"  --a='1'\"\nlevel=warn msg=lost what=lease\n\nlevel=info"))
	if want := []string{`level=info msg="  --a='1'"`, "level=warn msg=lost what=lease", "", "level=info"}; !slices.Equal(b.Lines(), want) {
		t.Errorf("%q, want %q", b.Lines(), want)
	}
	for want, words := range map[int][]string{1: {"lease", "warn"}, 2: {"level=info"}, 0: {"level=info", "lease"}, 4: nil} {
		if n := b.Count(words...); n != want {
			t.Errorf("%d lines have all of %q, want %d", n, words, want)
		}
	}
	if got, want := b.WithoutOptions(), "level=warn msg=lost what=lease\n\nlevel=info"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestWaitReturnsWhenTheLineIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b logtest.Buffer
		began := time.Now()
		go func() {
			time.Sleep(time.Second)
			fmt.Fprintln(&b, "first")
			time.Sleep(time.Second)
			fmt.Fprintln(&b, "second one")
		}()
		b.Wait(t, "second", "one")
		b.Wait(t, "first")
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// failing notes how a test fails, and ends its goroutine as a test does.
type failing struct {
	testing.TB
	why string
}

func (f *failing) Helper() {}

func (f *failing) Fatalf(format string, args ...any) {
	f.why = fmt.Sprintf(format, args...)
	panic(f)
}

func TestWaitFailsWithTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b logtest.Buffer
		fmt.Fprintln(&b, "something else")
		f := &failing{TB: t}
		func() {
			defer func() { _ = recover() }()
			b.Wait(f, "never")
		}()
		if !strings.Contains(f.why, `["never"]`) || !strings.Contains(f.why, "something else") {
			t.Errorf("it failed with %q", f.why)
		}
	})
}
