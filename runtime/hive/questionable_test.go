// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package hive_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/graph"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/hive"
	"github.com/skep-operator/skep/runtime/logging/logtest"
)

type vendorConfig struct {
	Range netip.Prefix `flag:"fjord-range"`
	Name  string       `flag:"fjord-name"`
}

func (c vendorConfig) Flags(fs *pflag.FlagSet) {
	fs.String("fjord-range", "", "Range of addresses")
	fs.String("fjord-name", c.Name, "Name of the range")
}

func (c vendorConfig) Validate() error {
	var errs []error
	if !c.Range.IsValid() {
		errs = append(errs, cell.Invalid("fjord-range", "must be given"))
	}
	if c.Name == "" {
		errs = append(errs, cell.Invalid("fjord-name", "must not be empty"))
	}
	if c.Name == "Odd" {
		errs = append(errs, cell.Questionable("fjord-name", "must be in lower case; the original takes it"))
	}
	if c.Name == "nmae" {
		errs = append(errs, cell.Invalid("fjord-nmae", "must be a name"))
	}
	return errors.Join(errs...)
}

var vendor = cell.Module("fjord", "Has options", cell.Config(vendorConfig{Name: "a"}))

// A value that cannot be decoded is reported once: its owner sees the default in its place.
func TestAnUndecodableValueIsReportedOnce(t *testing.T) {
	h := configured(t, newHive(cell.Set(vendor, cell.Validate(func(vendorConfig) error {
		return cell.Invalid("fjord-range", "must be large")
	}))), "--fjord-range=10.64.0.0/33", "--fjord-name=")
	want := `2 problems in the configuration:
  --fjord-range="10.64.0.0/33" (flag): netip.ParsePrefix("10.64.0.0/33"): prefix length out of range
  --fjord-name="" (flag): must not be empty`
	if err := h.Check(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// An error about a flag that no cell declares says so.
func TestInvalidNamesAFlagThatExists(t *testing.T) {
	h := configured(t, newHive(vendor), "--fjord-range=10.0.0.0/8", "--fjord-name=nmae")
	want := "fjord: --fjord-nmae: must be a name (no cell declares --fjord-nmae; did you mean fjord-name?)"
	if err := h.Check(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// A questionable value is used: it is a warning, degrades its module, and is refused by --strict-config only.
func TestQuestionableValues(t *testing.T) {
	args := []string{"--fjord-range=10.0.0.0/8", "--fjord-name=Odd"}
	const want = `--fjord-name="Odd" (flag): must be in lower case; the original takes it`
	log := &logtest.Buffer{}
	var tree *health.Tree
	h := configured(t, hive.New("test", cell.Set(vendor, cell.Invoke(func(t *health.Tree) { tree = t })), hive.LogTo(log), noEnvironment), args...)
	if err := h.Check(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{want}, h.Warnings()); diff != "" {
		t.Error(diff)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "must be in lower case"); n != 1 {
		t.Errorf("%d times in the log:\n%s", n, log)
	}
	var degraded []string
	for _, s := range tree.Degraded() {
		degraded = append(degraded, s.ID+": "+s.Message)
	}
	if diff := cmp.Diff([]string{"fjord.options: " + want}, degraded); diff != "" {
		t.Error(diff)
	}
	if err := h.Stop(context.Background()); err != nil {
		t.Error(err)
	}

	h = configured(t, newHive(vendor), append(args, "--strict-config")...)
	if err := h.Check(); err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// A constructor cannot do with a value that it objects to: its error stays one.
func TestAConstructorsErrorIsNeverTolerated(t *testing.T) {
	h := configured(t, newHive(cell.Set(vendor, cell.Invoke(func() error { return cell.Questionable("fjord-name", "cannot be used") }))), "--fjord-range=10.0.0.0/8")
	if err := h.Build(); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("%v", err)
	}
}

// A rule may ask for all values, the program and the graph.
func TestRulesMayAskForMoreThanStructs(t *testing.T) {
	rule := func(v *config.Values, b cell.BuildInfo, g graph.Source, c vendorConfig) error {
		e, _ := v.Lookup("fjord-name")
		if g().Module("fjord") == nil || !g().Module("fjord").Enabled {
			return errors.New("the graph has no modules")
		}
		return cell.Invalid("fjord-name", "%s of %s, and %s", e.Value, b.Name, c.Name)
	}
	h := configured(t, newHive(cell.Set(vendor, cell.Validate(rule))), "--fjord-range=10.0.0.0/8")
	if err := h.Check(); err == nil || err.Error() != `--fjord-name="a" (default): a of test, and a` {
		t.Errorf("%v", err)
	}
}
