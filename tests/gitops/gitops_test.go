// Package gitops compares the health that GitOps tools report for DaemonSets of yurt-ds with table.md. record.sh has recorded the
// objects.
//
// YURT_DS_GOLDEN=1 writes the table to table.md and to the page docs/how-to/gitops.md.
package gitops

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/pkg/apis/kustomize"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	page     = "../../docs/how-to/gitops.md"
	argo     = "../../examples/gitops/argocd-cm.yaml"
	flux     = "../../examples/gitops/flux.yaml"
	native   = "resource.customizations.health.apps_DaemonSet"
	advanced = "resource.customizations.health.apps.kruise.io_DaemonSet"
)

// phase is a phase of a rollout: the file of its recorded object, its name in the table, and the health that the script for Argo CD
// must return.
type phase struct{ file, name, health string }

// phases of a native DaemonSet that yurt-ds manages, in the order of the table.
var phases = []phase{
	{"not-reported", "created, yurt-ds has not reported", "Progressing"},
	{"not-observed", "just changed, Kubernetes has not seen it", "Progressing"},
	{"just-changed", "just changed, yurt-ds has not reported", "Progressing"},
	{"progressing", "in progress", "Progressing"},
	{"wave", "waits for the approval of a wave", "Progressing"},
	{"owners", "waits for node owners (OTA)", "Suspended"},
	{"paused", "paused", "Suspended"},
	{"stalled", "stalled", "Degraded"},
	{"invalid", "invalid settings", "Degraded"},
	{"offline", "complete, one node is offline", "Healthy"},
	{"complete", "complete, all nodes are updated", "Healthy"},
}

// ofAdvanced are the phases of an Advanced DaemonSet (apps.kruise.io). For this kind, kstatus evaluates only the observed
// generation and the condition Stalled.
var ofAdvanced = []phase{
	{"advanced-just-changed", "", "Progressing"},
	{"advanced-progressing", "", "Progressing"},
	{"advanced-paused", "", "Suspended"},
	{"advanced-complete", "", "Healthy"},
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func recorded(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("objects", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(content, object); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return object
}

// said returns the answer of a tool. It fails the test if the tool returned an error.
func said[T any](t *testing.T, phase string, answer T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", phase, err)
	}
	return answer
}

func script(t *testing.T, key string) string {
	t.Helper()
	var config struct{ Data map[string]string }
	read(t, argo, &config)
	if config.Data[key] == "" {
		t.Fatalf("%s has no %s", argo, key)
	}
	return config.Data[key]
}

func expressions(t *testing.T) []kustomize.CustomHealthCheck {
	t.Helper()
	var kustomization struct {
		Spec struct{ HealthCheckExprs []kustomize.CustomHealthCheck }
	}
	read(t, flux, &kustomization)
	return kustomization.Spec.HealthCheckExprs
}

// fluxFor is the status in Flux that has the same meaning as a health in Argo CD. Flux has no status for a paused rollout.
var fluxFor = map[string]string{
	"Healthy": "Current", "Progressing": "InProgress", "Suspended": "InProgress", "Degraded": "Failed",
}

func TestTable(t *testing.T) {
	rows := []string{
		"| the rollout is | Argo CD | Argo CD with the script | Flux `wait`, Helm 4 `--wait` | Flux with the expressions | Helm `--wait=legacy` |",
		"| --- | --- | --- | --- | --- | --- |",
	}
	for _, phase := range phases {
		object := recorded(t, phase.file)
		health, err := scriptOfArgo(script(t, native), object)
		health = said(t, phase.file, health, err)
		plain, err := waitOfFlux(object)
		plain = said(t, phase.file, plain, err)
		own, err := expressionsOfFlux(expressions(t), object)
		own = said(t, phase.file, own, err)
		if health.status != phase.health || own != fluxFor[phase.health] {
			t.Errorf("%s: %s in Argo CD, %s in Flux", phase.file, health.status, own)
		}
		rows = append(rows, fmt.Sprintf("| %s | %s | %s | %s | %s | %s |",
			phase.name, builtInOfArgo(object).status, health.status, plain, own, legacyWaitOfHelm(object)))
	}
	table := strings.Join(rows, "\n") + "\n"
	if os.Getenv("YURT_DS_GOLDEN") != "" {
		write(t, table)
	}
	for _, file := range []string{"table.md", page} {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(content), table) {
			t.Errorf("%s has another table than:\n%s\nYURT_DS_GOLDEN=1 tests/gitops.sh writes it", file, table)
		}
	}
}

// write replaces the table in table.md and in the page.
func write(t *testing.T, table string) {
	t.Helper()
	before, _ := os.ReadFile("table.md")
	content, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	changed := strings.Replace(string(content), string(before), table, 1)
	for file, text := range map[string]string{"table.md": table, page: changed} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAdvancedDaemonSets(t *testing.T) {
	for _, phase := range ofAdvanced {
		object := recorded(t, phase.file)
		health, err := scriptOfArgo(script(t, advanced), object)
		health = said(t, phase.file, health, err)
		own, err := expressionsOfFlux(expressions(t), object)
		own = said(t, phase.file, own, err)
		if health.status != phase.health || own != fluxFor[phase.health] {
			t.Errorf("%s: %s in Argo CD, %s in Flux", phase.file, health.status, own)
		}
	}
	plain, err := waitOfFlux(recorded(t, "advanced-progressing"))
	if said(t, "advanced-progressing", plain, err) != "Current" {
		t.Errorf("kstatus says %s about an Advanced DaemonSet in progress", plain)
	}
}

// TestUnmanaged checks DaemonSets without yurt-ds: the script and the expressions must agree with the built-in checks. The test
// changes a recorded object to every combination of the counters that these checks compare.
func TestUnmanaged(t *testing.T) {
	for _, strategy := range []string{"RollingUpdate", "OnDelete"} {
		for code := range 3 * 3 * 3 * 3 {
			object := recorded(t, "unmanaged")
			fields := []string{"observedGeneration", "desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable"}
			for _, field := range fields {
				set(t, object, int64(code%3), "status", field)
				code /= 3
			}
			object.SetGeneration(2)
			set(t, object, strategy, "spec", "updateStrategy", "type")
			health, err := scriptOfArgo(script(t, native), object)
			health = said(t, "unmanaged", health, err)
			if want := builtInOfArgo(object); health != want {
				t.Errorf("%s %+v: %v, but Argo CD says %v", strategy, countersOf(object), health, want)
			}
			plain, err := waitOfFlux(object)
			plain = said(t, "unmanaged", plain, err)
			own, err := expressionsOfFlux(expressions(t), object)
			own = said(t, "unmanaged", own, err)
			if own != plain {
				t.Errorf("%s %+v: %s, but kstatus says %s", strategy, countersOf(object), own, plain)
			}
		}
	}
}

// set changes a field. For the value 0 it removes the field, because the API server omits zeros.
func set(t *testing.T, object *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if value == int64(0) && path[1] != "desiredNumberScheduled" {
		unstructured.RemoveNestedField(object.Object, path...)
	} else if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// TestOpenKruise checks the script on DaemonSets that OpenKruise manages. They have no conditions of yurt-ds.
func TestOpenKruise(t *testing.T) {
	cases := []struct {
		change func(*unstructured.Unstructured)
		health string
	}{
		{func(*unstructured.Unstructured) {}, "Healthy"},
		{func(o *unstructured.Unstructured) { set(t, o, int64(1), "status", "updatedNumberScheduled") }, "Progressing"},
		{func(o *unstructured.Unstructured) {
			set(t, o, true, "spec", "updateStrategy", "rollingUpdate", "paused")
		}, "Suspended"},
		{func(o *unstructured.Unstructured) {
			set(t, o, "50%", "spec", "updateStrategy", "rollingUpdate", "partition")
		}, "Healthy"},
		{func(o *unstructured.Unstructured) { o.SetGeneration(9) }, "Progressing"},
	}
	for number, c := range cases {
		object := recorded(t, "advanced-complete")
		unstructured.RemoveNestedField(object.Object, "status", "conditions")
		c.change(object)
		health, err := scriptOfArgo(script(t, advanced), object)
		if health = said(t, "kruise", health, err); health.status != c.health {
			t.Errorf("case %d: %v", number, health)
		}
	}
}
