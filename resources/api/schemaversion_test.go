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

// released is a revision of our schemas with the hash of what it stands for.
type released struct {
	// Version is that of schemas from before there were revisions.
	Version  string `json:"version,omitempty"`
	Revision int    `json:"revision,omitempty"`
	SHA256   string `json:"sha256"`
}

// TestSchemaRevisionChangesWithSchemas fails when a definition changes and SchemaRevision does not:
// clusters that have the revision already would never get the change.
func TestSchemaRevisionChangesWithSchemas(t *testing.T) {
	history := schemaHistory(t)
	latest := history[len(history)-1]
	hash := schemaHash(t)
	switch {
	case api.SchemaRevision == latest.Revision && hash == latest.SHA256:
	case api.SchemaRevision == latest.Revision:
		t.Errorf("the definitions have changed since revision %d; give SchemaRevision its next value, and append\n- revision: <that value>\n  sha256: %s\nto %s",
			api.SchemaRevision, hash, historyFile)
	default:
		t.Errorf("SchemaRevision is %d and the latest known one %d; append\n- revision: %d\n  sha256: %s\nto %s",
			api.SchemaRevision, latest.Revision, api.SchemaRevision, hash, historyFile)
	}
	for i := range len(history) - 1 {
		older, newer := history[i], history[i+1]
		if newer.Revision != older.Revision+1 {
			t.Errorf("revision %d does not follow %d", newer.Revision, older.Revision)
		}
		if older.SHA256 == newer.SHA256 {
			t.Errorf("revisions %d and %d stand for the same definitions", older.Revision, newer.Revision)
		}
	}
}

// CRD-23: TestSchemaVersionStandsBetweenReleases keeps each version of ours directly below that of the release's own schemas,
// and above all that older releases, and we, have registered.
func TestSchemaVersionStandsBetweenReleases(t *testing.T) {
	before := "1.30.1"
	for _, r := range releases {
		ours := r.edition.SchemaVersion()
		if !order(t, before).LessThan(order(t, ours)) {
			t.Errorf("%s is not higher than %s: older definitions would stay", ours, before)
		}
		if !order(t, ours).LessThan(order(t, r.edition.Label)) {
			t.Errorf("%s is not lower than %s: cilium-operator %s would leave our definitions in its way", ours, r.edition.Label, r.version)
		}
		if errs := apivalidation.IsValidLabelValue(ours); len(errs) != 0 {
			t.Errorf("%s is no value of a label: %v", ours, errs)
		}
		before = r.edition.Label
	}
	if (api.Edition{}).SchemaVersion() != releases[0].edition.SchemaVersion() {
		t.Errorf("the zero edition has %s", api.Edition{}.SchemaVersion())
	}
}

// TestOrderOfSchemaVersions is the order that the next values of ours rely on.
func TestOrderOfSchemaVersions(t *testing.T) {
	ascending := []string{"1.30.0", "1.30.1-rc1", "1.30.1", "1.30.8-alpha.1", "1.30.8-alpha.2", "1.30.8-alpha.10", "1.30.8", "1.31.11-alpha.1", "1.31.11", "1.33.9-alpha.1", "1.33.9"}
	for i := range len(ascending) - 1 {
		if !order(t, ascending[i]).LessThan(order(t, ascending[i+1])) {
			t.Errorf("%s is not lower than %s", ascending[i], ascending[i+1])
		}
	}
	if order(t, "1.30.8-skep.1").LessThan(order(t, "1.30.8")) {
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
	for _, edition := range []api.Edition{{}, newest.edition} { // nothing stricter, and everything
		for _, kind := range api.Kinds() {
			text, err := json.Marshal(undescribed(definitionOf(t, kind.Name, edition)["spec"]))
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(hash, "%s\n", text)
		}
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
