// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package api_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	apivalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"github.com/skep-operator/skep/resources/api"
)

// released is a version of our schemas with the hash of what it stands for.
type released struct {
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
}

// TestSchemaVersionChangesWithSchemas fails when a definition changes and SchemaVersion does not:
// clusters that have the version already would never get the change.
func TestSchemaVersionChangesWithSchemas(t *testing.T) {
	history := schemaHistory(t)
	latest := history[len(history)-1]
	hash := schemaHash(t)
	switch {
	case api.SchemaVersion == latest.Version && hash == latest.SHA256:
	case api.SchemaVersion == latest.Version:
		t.Errorf("the definitions have changed since %s; give SchemaVersion its next value, and append\n- version: <that value>\n  sha256: %s\nto %s",
			api.SchemaVersion, hash, historyFile)
	default:
		t.Errorf("SchemaVersion is %s and the latest known one %s; append\n- version: %s\n  sha256: %s\nto %s",
			api.SchemaVersion, latest.Version, api.SchemaVersion, hash, historyFile)
	}
	for i := range len(history) - 1 {
		older, newer := history[i], history[i+1]
		if !order(t, older.Version).LessThan(order(t, newer.Version)) {
			t.Errorf("%s does not follow %s", newer.Version, older.Version)
		}
		if older.SHA256 == newer.SHA256 {
			t.Errorf("%s and %s stand for the same definitions", older.Version, newer.Version)
		}
	}
}

// TestSchemaVersionStandsBetweenReleases keeps our version between that of the schemas which ours equal
// and the next one that cilium-operator may use.
func TestSchemaVersionStandsBetweenReleases(t *testing.T) {
	ours := order(t, api.SchemaVersion)
	if ours.LessThan(order(t, "1.30.1")) {
		t.Errorf("%s is lower than 1.30.1: cilium-operator 1.17 would write over our definitions, and we would leave older ones", api.SchemaVersion)
	}
	if !ours.LessThan(order(t, "1.30.2")) {
		t.Errorf("%s is not lower than 1.30.2: later releases of cilium-operator would leave our definitions in their way", api.SchemaVersion)
	}
	if errs := apivalidation.IsValidLabelValue(api.SchemaVersion); len(errs) != 0 {
		t.Errorf("%s is no value of a label: %v", api.SchemaVersion, errs)
	}
}

// TestOrderOfSchemaVersions is the order that the next values of ours rely on.
func TestOrderOfSchemaVersions(t *testing.T) {
	ascending := []string{"1.30.0", "1.30.1-rc1", "1.30.1", "1.30.2-alpha.1", "1.30.2-alpha.2", "1.30.2-alpha.10", "1.30.2", "1.33.0"}
	for i := range len(ascending) - 1 {
		if !order(t, ascending[i]).LessThan(order(t, ascending[i+1])) {
			t.Errorf("%s is not lower than %s", ascending[i], ascending[i+1])
		}
	}
	if order(t, "1.30.2-skep.1").LessThan(order(t, "1.30.2")) {
		t.Error("a suffix that operators drop is taken for an order")
	}
}

// order reads a version as all operators do: a suffix counts only if it says what kind of pre-release it is.
func order(t *testing.T, value string) *version.Version {
	t.Helper()
	core, suffix, _ := strings.Cut(value, "-")
	for _, kind := range []string{"rc", "beta", "alpha", "snapshot"} {
		if strings.Contains(suffix, kind) {
			core = value
		}
	}
	parsed, err := version.ParseSemantic(core)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

const historyFile = "testdata/schema-versions.yaml"

func schemaHistory(t *testing.T) []released {
	t.Helper()
	text, err := os.ReadFile(historyFile)
	if err != nil {
		t.Fatal(err)
	}
	var history []released
	if err := yaml.UnmarshalStrict(text, &history); err != nil {
		t.Fatalf("%s: %v", historyFile, err)
	}
	if len(history) == 0 {
		t.Fatalf("%s has no version", historyFile)
	}
	return history
}

// schemaHash stands for all that our definitions say but their descriptions:
// these tell people something and an API server nothing, and are no reason to write to every cluster.
func schemaHash(t *testing.T) string {
	t.Helper()
	hash := sha256.New()
	for _, kind := range api.Kinds() {
		definition := definitionOf(t, kind.Name)
		text, err := json.Marshal(undescribed(definition["spec"]))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(hash, "%s\n", text)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// undescribed drops the descriptions. A property of that name is a schema, not a text, and stays.
func undescribed(value any) any {
	for _, element := range asList(value) {
		undescribed(element)
	}
	object := asTree(value)
	for key, below := range object {
		if _, isText := below.(string); isText && key == "description" {
			delete(object, key)
			continue
		}
		undescribed(below)
	}
	return value
}
