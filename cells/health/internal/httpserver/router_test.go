// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package httpserver

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/skep-operator/skep/runtime/printable/printabletest"
)

// API-18; K6 of the contract's tenants.md: no page controls the terminal of who reads it, and JSON has the same values.
func TestPagesPrint(t *testing.T) {
	for _, text := range append(printabletest.Texts, "\x7f\u009b31m\U000e0041") {
		value, failure, plain := httptest.NewRecorder(), httptest.NewRecorder(), httptest.NewRecorder()
		WriteJSON(value, []string{text})
		var values []string
		if err := json.Unmarshal(value.Body.Bytes(), &values); err != nil || values[0] != text {
			t.Errorf("%q is %q: %v", text, values, err)
		}
		WriteError(failure, 500, text)
		var answer struct{ Message string }
		if err := json.Unmarshal(failure.Body.Bytes(), &answer); err != nil || answer.Message != text {
			t.Errorf("%q is %q: %v", text, answer, err)
		}
		WriteText(plain, 200, strings.ReplaceAll(text, "\n", " "))
		for _, page := range []*httptest.ResponseRecorder{value, failure, plain} {
			printabletest.Check(t, "a page", page.Body.String())
		}
	}
}
