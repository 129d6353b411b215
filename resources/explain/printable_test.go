// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// K6 of the contract's tenants.md: a page that is read without a command prints, and its JSON has the same values.
func TestPagesPrint(t *testing.T) {
	for _, text := range append(printabletest.Texts, "\x7f\u009b31m\U000e0041") {
		page := httptest.NewRecorder()
		answer(page, Explanation{Writes: []Write{{Name: text, Result: text}}})
		printabletest.Check(t, "a page", page.Body.String())
		var got Explanation
		if err := json.Unmarshal(page.Body.Bytes(), &got); err != nil || len(got.Writes) != 1 || got.Writes[0].Name != text || got.Writes[0].Result != text {
			t.Errorf("%q is %+v: %v", text, got, err)
		}
	}
}
