// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package ways fails in the way that SKEP_WAY names. What fails once leaves a
// file in SKEP_SEEN.
package ways

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// way is asked while tests run: what is read before is unknown to Go's cache.
func way() string { return os.Getenv("SKEP_WAY") }

func TestMain(m *testing.M) {
	code := m.Run()
	if way() == "leak" && code == 0 && first("leak") {
		fmt.Println("found unexpected goroutines")
		code = 1
	}
	os.Exit(code)
}

// first tells whether something happens for the first time.
func first(name string) bool {
	file, err := os.OpenFile(filepath.Join(os.Getenv("SKEP_SEEN"), name), os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	return file.Close() == nil
}

func TestWell(t *testing.T) { t.Log("is well") }

func TestWay(t *testing.T) {
	t.Log("the parent speaks")
	name, times, _ := strings.Cut(way(), "-")
	var n int
	if _, err := fmt.Sscan(times, &n); err != nil {
		n = 1
	}
	for i := range n {
		t.Run(fmt.Sprintf("sub/%d", i), func(t *testing.T) { fail(t, name, fmt.Sprint(i)) })
	}
}

// TestAfter fails if it runs twice, which it must not: it passes the first time.
func TestAfter(t *testing.T) {
	if way() != "" && !first("after") {
		t.Error("ran before")
	}
}

func fail(t *testing.T, way, i string) {
	switch way {
	case "once":
		if first(i) {
			t.Error("failed for the first time")
		}
	case "always":
		t.Error("failed again")
	case "skips":
		if !first(i) {
			t.Skip("passes never")
		}
		t.Error("failed for the first time")
	case "renamed":
		t.Run(time.Now().Format("05.000000"), func(t *testing.T) { t.Error("has another name next time") })
	case "panics":
		panic("boom")
	case "dies":
		if !first(i) {
			return
		}
		self, _ := os.FindProcess(os.Getpid())
		_ = self.Kill()
		select {}
	case "hangs":
		time.Sleep(time.Minute) // it hangs
	case "races":
		race(t)
	}
}

// race fails by itself under the race detector only.
func race(t *testing.T) {
	shared, done := 0, make(chan struct{})
	go func() { shared++; close(done) }()
	shared++
	<-done
	t.Log(shared)
}
