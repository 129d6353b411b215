// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package operatortest

import (
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// TextLog is the argument with which its log is text, as people read it. Messages and Warnings cannot read that.
const TextLog = "--log-opt=format=text"

// CheckPrintable fails the test if what people read of the operator, its log and its health, controls what it is shown with. Both have to have
// something of printabletest.Hostile by then, unless the test fails. The operator runs with TextLog.
func (o *Operator) CheckPrintable() {
	o.t.Helper()
	printabletest.CheckContains(o.t, "the log", o.log.String())
	printabletest.CheckContains(o.t, "health", o.HealthText())
}

// HealthText is what the commands show of its health.
func (o *Operator) HealthText() string {
	var b strings.Builder
	_ = health.WriteText(&b, o.health.Snapshot(), time.Now()) // a Builder does not fail
	return b.String()
}
