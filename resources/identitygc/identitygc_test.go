// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package identitygc_test

import (
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/identitygc"
	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

func TestCell(t *testing.T) {
	celltest.Check(t, identitygc.Cell, celltest.InTerm("leader"), celltest.OffArgs("--identity-gc-interval=0"))
}

func TestOptions(t *testing.T) {
	for arg, flag := range map[string]string{
		"--identity-gc-interval=-1s":      "identity-gc-interval",
		"--identity-heartbeat-timeout=-1": "identity-heartbeat-timeout",
		"--identity-gc-rate-limit=0":      "identity-gc-rate-limit",
		"--identity-gc-rate-interval=0":   "identity-gc-rate-interval",
	} {
		_, err := operatortest.New(t, identitygc.Cell, "/nonexistent", arg)
		if err == nil || !strings.Contains(err.Error(), "--"+flag) {
			t.Errorf("%s: %v", arg, err)
		}
	}
}

// IDGC-11.
func TestBudget(t *testing.T) {
	b := identitygc.NewBudget(identitygc.Config{IdentityGCRateLimit: 30, IdentityGCRateInterval: time.Minute})
	now := time.Now()
	n := 0
	for at := time.Duration(0); at < time.Minute; at += 100 * time.Millisecond {
		if b.AllowN(now.Add(at), 1) {
			n++
		}
	}
	if n != 30 {
		t.Errorf("%d deletes in a minute", n)
	}
}
