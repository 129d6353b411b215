// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/runtime/logging/logtest"
)

// MESH-10; number 5.5 of the contract's tenants.md: however many values cannot be used, a minute has five lines.
func TestUnusableValuesAreSummed(t *testing.T) {
	var out logtest.Buffer
	u := unusable{log: slog.New(slog.NewTextHandler(&out, nil))}
	now := time.Unix(0, 0)
	burst := func() {
		for i := range 3000 {
			u.report(fmt.Sprintf("key-%d", i), errors.New("no JSON"), now)
		}
	}
	burst()
	u.sum(now) // the listing is complete
	burst()
	u.sum(now)
	if lines := out.Lines(); len(lines) != 5 || !strings.Contains(lines[4], "values=2996") {
		t.Errorf("a minute has %d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	now = now.Add(unusablePause)
	u.report("key", errors.New("no JSON"), now)
	if lines := out.Lines(); len(lines) != 7 || !strings.Contains(lines[5], "values=3000") || !strings.Contains(lines[6], "key=key") {
		t.Errorf("after a minute:\n%s", strings.Join(lines, "\n"))
	}
}
