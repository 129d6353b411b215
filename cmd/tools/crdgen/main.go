// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Command crdgen writes the CustomResourceDefinitions of the API packages below a folder into its sub-folder crds, and as
// JSON, which programs parse in a fraction of the time, into crds/json.
// It is controller-gen with the few markers added that it lacks (see markers.go), and without what an API server fills in
// or is not to be sent: the definitions are those that the operator creates, but for the label that it adds.
//
//	go -C cmd/tools run ./crdgen ../../resources/api
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/controller-tools/pkg/crd"
	"sigs.k8s.io/controller-tools/pkg/genall"
	"sigs.k8s.io/controller-tools/pkg/markers"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: crdgen FOLDER")
		os.Exit(2)
	}
	if err := generate(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "crdgen:", err)
		os.Exit(1)
	}
}

// generate works in the folder itself, because packages are loaded by the module that they are part of.
func generate(folder string) error {
	if err := os.Chdir(folder); err != nil {
		return err
	}
	var crds genall.Generator = generator{}
	run, err := genall.Generators{&crds}.ForRoots("./...")
	if err != nil {
		return fmt.Errorf("load the packages below %s: %w", folder, err)
	}
	run.OutputRules.Default = genall.OutputToDirectory("crds")
	if failed := run.Run(); failed {
		return fmt.Errorf("the packages below %s have the errors above", folder)
	}
	return nil
}

// generator is the generator of controller-gen with our markers and our output.
type generator struct{ crd.Generator }

func (g generator) RegisterMarkers(into *markers.Registry) error {
	if err := g.Generator.RegisterMarkers(into); err != nil {
		return err
	}
	return registerMarkers(into)
}

func (g generator) Generate(ctx *genall.GenerationContext) error {
	parser := &crd.Parser{Collector: ctx.Collector, Checker: ctx.Checker}
	crd.AddKnownTypes(parser)
	for _, root := range ctx.Roots {
		parser.NeedPackage(root)
	}
	for _, kind := range crd.FindKubeKinds(parser, crd.FindMetav1(ctx.Roots)) {
		parser.NeedCRDFor(kind, nil)
		definition := parser.CustomResourceDefinitions[kind]
		crd.FixTopLevelMetadata(definition)
		if err := dropDefaults(&definition); err != nil {
			return err
		}
		definition.Spec.Names.ListKind = ""
		if err := ctx.WriteYAML(definition.Name+".yaml", "", []any{definition},
			genall.WithTransform(withoutStatus), genall.WithTransform(genall.TransformRemoveCreationTimestamp)); err != nil {
			return fmt.Errorf("write the definition of %s: %w", kind, err)
		}
		if err := writeJSON(ctx, definition.Name, definition); err != nil {
			return fmt.Errorf("write the definition of %s as JSON: %w", kind, err)
		}
	}
	return nil
}

// writeJSON writes a definition with the content that it has as YAML, in one line.
func writeJSON(ctx *genall.GenerationContext, name string, definition any) error {
	text, err := json.Marshal(definition)
	if err != nil {
		return err
	}
	var content map[string]any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if err := numbers.Decode(&content); err != nil {
		return err
	}
	delete(content, "status")
	delete(content["metadata"].(map[string]any), "creationTimestamp")
	out, err := ctx.Open(nil, filepath.Join("json", name+".json"))
	if err != nil {
		return err
	}
	return errors.Join(json.NewEncoder(out).Encode(content), out.Close())
}

func withoutStatus(definition map[string]any) error {
	delete(definition, "status")
	return nil
}
