// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// K8S-26: of work that needs much memory one is done at a time; others do not wait for it.
func TestLargeWritesHaveTurns(t *testing.T) {
	large, small := bytes.Repeat([]byte("{},"), 20_000), []byte("{}")
	manyKeys := bytes.Repeat([]byte(`"k":"",`), 75_000)
	first, release := WithTurn(t.Context())
	if err := awaitTurn(first, large); err != nil {
		t.Fatal(err)
	}
	if err := awaitTurn(first, large); err != nil { // it has the turn
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	within, releaseWithin := WithTurn(first) // as Modify does
	if err := awaitTurn(within, large); err != nil {
		t.Errorf("work waits for itself: %v", err)
	}
	releaseWithin()
	second, releaseSecond := WithTurn(short)
	if err := awaitTurn(second, small); err != nil {
		t.Errorf("a small one waits: %v", err)
	}
	for _, body := range [][]byte{large, manyKeys} {
		if err := awaitTurn(second, body); err == nil {
			t.Error("two have the turn")
		}
	}
	releaseSecond()
	release()
	third, releaseThird := WithTurn(t.Context())
	defer releaseThird()
	if err := awaitTurn(third, large); err != nil {
		t.Error(err)
	}
}

// K8S-26: an answer that came is read although the work has to stop.
func TestAnswersAreReadAtAStop(t *testing.T) {
	large := bytes.Repeat([]byte("{},"), 20_000)
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		ctx, release := WithTurn(ctx)
		if err := awaitTurn(ctx, large); err != nil {
			t.Fatalf("nothing holds the turn: %v", err)
		}
		release()
	}
}

// K8S-27: work that does not return has no turn ten seconds after it has to stop, and when it returns the turn is not that of another one.
func TestTurnOfWorkThatIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turn := make(chan struct{}, 1) // of this test's clock
		large := bytes.Repeat([]byte("{},"), 20_000)
		stopped, stop := context.WithCancel(t.Context())
		first, releaseFirst := withTurnOf(stopped, turn)
		if err := awaitTurn(first, large); err != nil {
			t.Fatal(err)
		}
		stop()
		began := time.Now()
		second, releaseSecond := withTurnOf(t.Context(), turn)
		if err := awaitTurn(second, large); err != nil || time.Since(began) != leftBehind {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		releaseFirst()
		if err := awaitTurn(first, large); err == nil {
			t.Error("it has a turn again")
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		third, releaseThird := withTurnOf(short, turn)
		if err := awaitTurn(third, large); err == nil {
			t.Error("two have the turn")
		}
		releaseThird()
		releaseSecond()
	})
}

// K8S-26: whatever the shape of a body, its estimate is not less than half of what decoding it allocates, and that of a usual one not more than four times as much.
func TestMemoryOfBodies(t *testing.T) {
	const n = 100_000
	list := func(item string) string {
		return `{"metadata":{"finalizers":[` + strings.Repeat(item+",", n) + item + `]}}`
	}
	object := func(entry string) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, `"%d":%s,`, i, entry)
		}
		return `{"status":{` + all.String() + `"last":` + entry + `}}`
	}
	for name, body := range map[string]string{
		"texts":              list(`"a/a"`),
		"empty texts":        list(`""`),
		"long texts":         list(`"` + strings.Repeat("a", 100) + `"`),
		"escaped texts":      list(`"\"{[,:\\"`),
		"small numbers":      list("1"),
		"large numbers":      list("1000000"),
		"fractions":          list("1.5"),
		"booleans":           list("true"),
		"nulls":              list("null"),
		"empty lists":        list("[]"),
		"lists of one":       list("[0]"),
		"lists of lists":     list("[[[]]]"),
		"empty objects":      list("{}"),
		"objects":            list(`{"a":0}`),
		"objects of objects": list(`{"a":{"b":{}}}`),
		"entries":            object("0"),
		"entries of texts":   object(`"a"`),
		"entries of lists":   object("[]"),
		"entries of objects": object("{}"),
		"usual objects":      list(`{"name":"backend-of-a-service","namespace":"default","ports":[{"name":"http","port":8080,"protocol":"TCP"}],"ready":true}`),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		var decoded any
		err := utiljson.Unmarshal([]byte(body), &decoded)
		runtime.ReadMemStats(&after)
		got, is := memoryOf([]byte(body)), int(after.TotalAlloc-before.TotalAlloc)
		t.Logf("%s: estimated %d of %d bytes for each of %d", name, got/n, is/n, len(body)/n)
		if err != nil || got < is/2 || name == "usual objects" && got > 4*is {
			t.Errorf("%s: the estimate is %d bytes, and decoding allocates %d: %v", name, got, is, err)
		}
	}
}
