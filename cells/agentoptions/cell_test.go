// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agentoptions

import (
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/cell/celltest"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

func TestCell(t *testing.T) { celltest.Check(t, Cell) }

// CONF-13.
func TestValues(t *testing.T) {
	for value, valid := range map[string]bool{"default": true, "always": true, "never": true, "Always": true, "": false, "sometimes": false} {
		err := Config{EnablePolicy: value}.Validate()
		if (err == nil) != valid || err != nil && !strings.Contains(err.Error(), "default, always, never") {
			t.Errorf("%q: %v", value, err)
		}
	}
}
