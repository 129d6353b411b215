// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"bytes"
	"context"
	"testing"
	"time"
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
