// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/skep-operator/skep/resources/stream/streamtest"
)

// The promises in the comment of Resource are the properties of package
// streamtest, in the same order.
func TestPromisesAreProperties(t *testing.T) {
	var properties []string
	for _, p := range streamtest.Properties() {
		properties = append(properties, p.Name)
	}
	if promises := promises(t); !slices.Equal(promises, properties) {
		t.Errorf("the comment of Resource promises\n%q, package streamtest tests\n%q", promises, properties)
	}
}

var promise = regexp.MustCompile(`(?m)^  - (\w+(?:, \w+)*):`)

// promises are the names in the list of the comment of Resource.
func promises(t *testing.T) (names []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "resource.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range file.Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE {
			for _, m := range promise.FindAllStringSubmatch(d.Doc.Text(), -1) {
				names = append(names, strings.Split(m[1], ", ")...)
			}
		}
	}
	return names
}
